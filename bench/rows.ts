import type { Row } from "./row.js";
import { betterAuth } from "./rows/better-auth.js";
import { credits } from "./rows/credits.js";
import { grpcConnect, grpcVerify } from "./rows/grpc-verify.js";
import { httpIdentity } from "./rows/http-identity.js";
import { httpVerify } from "./rows/http-verify.js";
import { latency } from "./rows/latency.js";
import { lists } from "./rows/lists.js";
import { memory } from "./rows/memory.js";
import { rateLimits } from "./rows/rate-limits.js";
import { scale } from "./rows/scale.js";
import { localJwt, localLatency, localVerify, verifierCost } from "./rows/verifier.js";
import { workers } from "./rows/workers.js";

/** All rows, in the order of the table. */
export const rows: readonly Row[] = [
  httpVerify,
  httpIdentity,
  grpcVerify,
  grpcConnect,
  betterAuth,
  latency,
  workers,
  scale,
  memory,
  lists,
  rateLimits,
  credits,
  localVerify,
  localJwt,
  localLatency,
  verifierCost,
];
