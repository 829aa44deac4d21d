import { grpcKinds } from "./grpc-kinds.js";
import { httpKinds } from "./http-kinds.js";
import { jsonKinds } from "./json-kinds.js";
import type { Kind } from "./kind.js";
import { largeKinds } from "./large-kinds.js";
import { messageKinds } from "./message-kinds.js";
import { repeatKinds } from "./repeat-kinds.js";
import { requestKinds } from "./request-kinds.js";

/** Every kind of input. */
export const kinds: readonly Kind[] = [
  ...requestKinds,
  ...jsonKinds,
  ...messageKinds,
  ...httpKinds,
  ...grpcKinds,
  ...repeatKinds,
  ...largeKinds,
];
