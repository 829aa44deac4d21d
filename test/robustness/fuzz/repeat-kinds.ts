import { getOption } from "@bufbuild/protobuf";
import fc from "fast-check";
import { accepts_idempotency_key } from "../../../gen/latchkey/v1/idempotency_pb.js";
import { goodRequest } from "./good-requests.js";
import { type Draft, encode, type Kind, type Means } from "./kind.js";
import type { Operation } from "./operations.js";
import { resolved, type Template } from "./request.js";
import { type ProtocolName, protocolNames, type Sent, sentTo } from "./sent.js";

/** Good requests that bring an Idempotency-Key, or something in its place. */
export const repeatKinds: readonly Kind[] = [
  {
    name: "an Idempotency-Key",
    weight: 20,
    protocols: protocolNames,
    make: (operation, protocol) =>
      fc.tuple(goodRequest(operation.rpc.input), fineKey).map(([good, key]): Draft => {
        const keyed = sendWith(operation, good, [key]);
        // What is made once is answered again the same, also through another protocol.
        const again = (means: Means) => ({ again: keyed(protocol === "http" ? "grpc" : "http", means) });
        return (means) => ({
          sent: keyed(protocol, means),
          form: "sound",
          ...(isRepeatable(operation) && again(means)),
        });
      }),
  },
  {
    name: "odd Idempotency-Keys",
    protocols: protocolNames,
    make: (operation, protocol) =>
      fc.tuple(goodRequest(operation.rpc.input), oddKeys).map(([good, keys]): Draft => {
        const keyed = sendWith(operation, good, keys);
        // Operations that create nothing do not look at it.
        const expected = isRepeatable(operation)
          ? ({ form: "unsound", location: "Idempotency-Key" } as const)
          : ({ form: "either" } as const);
        return (means) => ({ sent: keyed(protocol, means), ...expected });
      }),
  },
];

/** No two cases have the same by chance. */
const fineKey = fc
  .tuple(fc.uuid(), fc.stringMatching(/^[!-+\--~][ -+\--~]{0,200}[!-+\--~]$/))
  .map(([unique, text]) => `${unique}${text}`);

const oddKeys = fc.oneof(
  fc.integer({ min: 256, max: 2_000 }).map((length) => ["x".repeat(length)]),
  fc.constantFrom(["é"], ["a\tb"], ["ÿþ"], ["a\u0080"], [""], ["a,b"], [","], ["a", "a"], ["a", "b"], ["a", "b", "c"]),
);

function isRepeatable({ rpc }: Operation): boolean {
  return getOption(rpc, accepts_idempotency_key);
}

function sendWith(operation: Operation, good: Template, keys: readonly string[]) {
  return (protocol: ProtocolName, { credential, resolve }: Means): Sent => {
    const sent = sentTo(protocol, operation, credential, encode(protocol, operation, resolved(good, resolve)));
    if (sent.by === "socket") throw new Error(`${protocol} is not asked by bytes`);
    return { ...sent, headers: [...sent.headers, ...keys.map((key) => ["idempotency-key", key] as const)] };
  };
}
