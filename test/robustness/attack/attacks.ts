import type { Attack } from "./attack.js";
import { terminalEscapes } from "./attacks/cli.js";
import {
  compressedMessages,
  idleConnections,
  oneByteFrames,
  reflectionFlood,
  unreadGrpcLists,
  watchFlood,
} from "./attacks/grpc-memory.js";
import { budgetLeak, oneByteChunks, pipelinedPages, unreadLists300, unreadPages } from "./attacks/http-memory.js";
import { impossibleFolder, localPorts, plantedCredential, secretInOutput } from "./attacks/local.js";
import { lateBody, passedDeadline } from "./attacks/revocation.js";
import { borrowedNames, lockOut, outlivingExpiry } from "./attacks/scopes.js";
import { endlessGrowth, largeIdentities, slowSearches } from "./attacks/tenants.js";
import {
  manyVerifierStreams,
  unreadVerifierStreams,
  verifierConnections,
  verifierLookups,
  verifierMessages,
} from "./attacks/verifiers.js";
import { cachedSecrets, oddRequests, slowReading, unloggedCalls, weakCiphers } from "./attacks/wire.js";
import { compressedBodies, expensiveBodies } from "./attacks/work.js";

/** All attacks, the most severe first. */
export const attacks: readonly Attack[] = [
  lateBody,
  compressedMessages,
  pipelinedPages,
  compressedBodies,
  expensiveBodies,
  unreadPages,
  unreadLists300,
  unreadGrpcLists,
  budgetLeak,
  slowSearches,
  largeIdentities,
  oneByteChunks,
  oneByteFrames,
  reflectionFlood,
  watchFlood,
  verifierMessages,
  verifierLookups,
  unreadVerifierStreams,
  manyVerifierStreams,
  verifierConnections,
  idleConnections,
  borrowedNames,
  outlivingExpiry,
  lockOut,
  localPorts,
  endlessGrowth,
  unloggedCalls,
  impossibleFolder,
  passedDeadline,
  plantedCredential,
  secretInOutput,
  oddRequests,
  weakCiphers,
  terminalEscapes,
  cachedSecrets,
  slowReading,
];
