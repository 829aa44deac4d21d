import { gzipSync } from "node:zlib";
import fc from "fast-check";
import { goodRequest } from "./good-requests.js";
import { type Draft, encode, type Input, type Kind } from "./kind.js";
import type { Operation } from "./operations.js";
import { resolved, type Template } from "./request.js";
import { frame, type StreamSent, sentTo } from "./sent.js";

const protocols = ["grpc"] as const;

/** Good messages in odd gRPC. */
export const grpcKinds: readonly Kind[] = [
  {
    name: "odd frames",
    weight: 20,
    protocols,
    make: (operation) =>
      fc
        .tuple(goodRequest(operation.rpc.input), fc.constantFrom(...Object.entries(oddFrames)))
        .map(([good, [, reframe]]) =>
          changed(operation, good, (sent) => ({ ...sent, body: reframe(sent.body.subarray(5)) })),
        ),
  },
  {
    name: "compressed frames",
    protocols,
    make: (operation) =>
      fc
        .tuple(
          goodRequest(operation.rpc.input),
          fc.constantFrom("gzip", "identity", "deflate", "br", "rubbish"),
          fc.constantFrom(...compressions),
        )
        .map(([good, encoding, compress]) =>
          changed(operation, good, (sent) => ({
            ...sent,
            headers: [...sent.headers, ["grpc-encoding", encoding]],
            body: frame(compress(sent.body.subarray(5)), 1),
          })),
        ),
  },
  {
    name: "odd metadata",
    protocols,
    make: (operation) => {
      const name = fc.constantFrom(
        "x-a",
        "x-a-bin",
        "grpc-timeout",
        "grpc-accept-encoding",
        "traceparent",
        "user-agent",
        "grpc-status-details-bin",
        "__proto__",
        "constructor",
        "cookie",
      );
      const value = fc.oneof(
        fc.constantFrom("x".repeat(5_000), "%%%", "====", "1S", "99999999H", "-1S", "1e9S", "0n", "", "AAAA", "ÿþ"),
        fc.stringMatching(/^[ -~]{0,50}$/),
      );
      return fc
        .tuple(goodRequest(operation.rpc.input), fc.array(fc.tuple(name, value), { minLength: 1, maxLength: 30 }))
        .map(([good, more]) =>
          changed(operation, good, (sent) => ({ ...sent, headers: [...sent.headers, ...onceEach(more)] }), {
            form: "either",
            isTimed: true,
          }),
        );
    },
  },
  {
    name: "odd content types of gRPC",
    weight: 4,
    protocols,
    make: (operation) =>
      fc
        .tuple(
          goodRequest(operation.rpc.input),
          fc.constantFrom(
            "application/json",
            "application/grpc+json",
            "application/grpc;a=b",
            "application/grpc-web",
            "",
            "application/proto",
          ),
        )
        .map(([good, type]) =>
          changed(operation, good, (sent) => ({
            ...sent,
            headers: sent.headers.map(([name, value]) => [name, name === "content-type" ? type : value] as const),
          })),
        ),
  },
  {
    name: "unknown paths of gRPC",
    weight: 4,
    protocols,
    make: (operation) =>
      fc
        .tuple(goodRequest(operation.rpc.input), fc.constantFrom("/", "x", "%00", "?a=b", "//", "/../", " ".trim()))
        .map(([good, odd]) => changed(operation, good, (sent) => ({ ...sent, path: `${sent.path}${odd}` }))),
  },
];

/** What can be wrong with the frames of a unary call. */
const oddFrames: Record<string, (message: Buffer) => Buffer> = {
  "compressed, but it does not say how": (message) => frame(message, 1),
  "flags that do not exist": (message) => frame(message, 0xfe),
  "two messages": (message) => Buffer.concat([frame(message), frame(message)]),
  none: () => Buffer.alloc(0),
  "half a head": (message) => frame(message).subarray(0, 3),
  "a message cut short": (message) => frame(Buffer.concat([message, Buffer.from("ab")])).subarray(0, -1),
  "a length that is too large": (message) => frame(message, 0, message.length + 10),
  "a length that is enormous": (message) => frame(message, 0, 2 ** 32 - 1),
  "a length that is too small": (message) => frame(message, 0, Math.max(0, message.length - 2)),
  "bytes behind it": (message) => Buffer.concat([frame(message), Buffer.of(0)]),
};

const compressions: readonly ((message: Buffer) => Buffer)[] = [
  (message) => gzipSync(message, { level: 1 }),
  (message) => message,
  (message) => gzipSync(message, { level: 1 }).subarray(0, 12),
];

/** HTTP/2 of Node takes a header of some names only once. */
function onceEach(headers: readonly (readonly [string, string])[]): (readonly [string, string])[] {
  return [...new Map(headers)];
}

function changed(
  operation: Operation,
  good: Template,
  change: (sent: StreamSent) => StreamSent,
  more: Omit<Input, "sent"> = { form: "either" },
): Draft {
  return ({ credential, resolve }) => {
    const sent = sentTo("grpc", operation, credential, encode("grpc", operation, resolved(good, resolve)));
    if (sent.by !== "http2") throw new Error("gRPC is asked by HTTP/2");
    return { sent: change(sent), ...more };
  };
}
