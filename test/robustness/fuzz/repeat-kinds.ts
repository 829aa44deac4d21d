import { getOption } from "@bufbuild/protobuf";
import fc from "fast-check";
import { accepts_idempotency_key } from "../../../gen/latchkey/v1/idempotency_pb.js";
import { type ProtocolName, protocolNames, type RawRequest, toRawRequest } from "../../support/clients/raw-request.js";
import { type CaseContext, type Draft, encode, type Kind } from "./kind.js";
import type { Operation } from "./operations.js";
import { resolved, type Template } from "./request.js";
import { validRequest } from "./valid-requests.js";

/** Valid requests with a valid or invalid Idempotency-Key. */
export const repeatKinds: readonly Kind[] = [
  {
    name: "retry with Idempotency-Key",
    weight: 20,
    protocols: protocolNames,
    make: (operation, protocol) =>
      fc.tuple(validRequest(operation.rpc.input), validKey).map(([valid, key]): Draft => {
        const withKey = sendWith(operation, valid, [key]);
        // A retry returns the first response, also over another protocol.
        const retry = (context: CaseContext) => ({ retry: withKey(protocol === "http" ? "grpc" : "http", context) });
        return (context) => ({
          raw: withKey(protocol, context),
          form: "valid",
          ...(acceptsIdempotencyKey(operation) && retry(context)),
        });
      }),
  },
  {
    name: "invalid Idempotency-Keys",
    protocols: protocolNames,
    make: (operation, protocol) =>
      fc.tuple(validRequest(operation.rpc.input), invalidKeys).map(([valid, keys]): Draft => {
        const withKey = sendWith(operation, valid, keys);
        // Operations that create nothing ignore the header.
        const expected = acceptsIdempotencyKey(operation)
          ? ({ form: "invalid", location: "Idempotency-Key" } as const)
          : ({ form: "either" } as const);
        return (context) => ({ raw: withKey(protocol, context), ...expected });
      }),
  },
];

/** Contains a UUID, so that no two cases share a key by chance. */
const validKey = fc
  .tuple(fc.uuid(), fc.stringMatching(/^[!-+\--~][ -+\--~]{0,200}[!-+\--~]$/))
  .map(([unique, text]) => `${unique}${text}`);

const invalidKeys = fc.oneof(
  fc.integer({ min: 256, max: 2_000 }).map((length) => ["x".repeat(length)]),
  fc.constantFrom(["é"], ["a\tb"], ["ÿþ"], ["a\u0080"], [""], ["a,b"], [","], ["a", "a"], ["a", "b"], ["a", "b", "c"]),
);

function acceptsIdempotencyKey({ rpc }: Operation): boolean {
  return getOption(rpc, accepts_idempotency_key);
}

function sendWith(operation: Operation, valid: Template, keys: readonly string[]) {
  return (protocol: ProtocolName, { credential, resolve }: CaseContext): RawRequest => {
    const raw = toRawRequest(protocol, operation, credential, encode(protocol, operation, resolved(valid, resolve)));
    if (raw.by === "socket") throw new Error(`${protocol} is not sent as raw bytes`);
    return { ...raw, headers: [...raw.headers, ...keys.map((key) => ["idempotency-key", key] as const)] };
  };
}
