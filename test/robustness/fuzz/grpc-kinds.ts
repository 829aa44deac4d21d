import { gzipSync } from "node:zlib";
import fc from "fast-check";
import { grpcFrame } from "../../support/clients/grpc-streams.js";
import { type RawStream, toRawRequest } from "../../support/clients/raw-request.js";
import { type Draft, encode, type Input, type Kind } from "./kind.js";
import type { Operation } from "./operations.js";
import { resolved, type Template } from "./request.js";
import { validRequest } from "./valid-requests.js";

const protocols = ["grpc"] as const;

/** Valid messages with unusual gRPC framing and metadata. */
export const grpcKinds: readonly Kind[] = [
  {
    name: "malformed gRPC frames",
    weight: 20,
    protocols,
    make: (operation) =>
      fc
        .tuple(validRequest(operation.rpc.input), fc.constantFrom(...Object.entries(malformedFrames)))
        .map(([valid, [, reframe]]) =>
          changed(operation, valid, (raw) => ({ ...raw, body: reframe(raw.body.subarray(5)) })),
        ),
  },
  {
    name: "compressed gRPC frames",
    protocols,
    make: (operation) =>
      fc
        .tuple(
          validRequest(operation.rpc.input),
          fc.constantFrom("gzip", "identity", "deflate", "br", "rubbish"),
          fc.constantFrom(...compressions),
        )
        .map(([valid, encoding, compress]) =>
          changed(operation, valid, (raw) => ({
            ...raw,
            headers: [...raw.headers, ["grpc-encoding", encoding]],
            body: grpcFrame(compress(raw.body.subarray(5)), 1),
          })),
        ),
  },
  {
    name: "unusual gRPC metadata",
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
        .tuple(validRequest(operation.rpc.input), fc.array(fc.tuple(name, value), { minLength: 1, maxLength: 30 }))
        .map(([valid, more]) =>
          changed(operation, valid, (raw) => ({ ...raw, headers: [...raw.headers, ...uniqueByName(more)] }), {
            form: "either",
            isTimed: true,
          }),
        );
    },
  },
  {
    name: "unusual gRPC content types",
    weight: 4,
    protocols,
    make: (operation) =>
      fc
        .tuple(
          validRequest(operation.rpc.input),
          fc.constantFrom(
            "application/json",
            "application/grpc+json",
            "application/grpc;a=b",
            "application/grpc-web",
            "",
            "application/proto",
          ),
        )
        .map(([valid, type]) =>
          changed(operation, valid, (raw) => ({
            ...raw,
            headers: raw.headers.map(([name, value]) => [name, name === "content-type" ? type : value] as const),
          })),
        ),
  },
  {
    name: "unknown gRPC paths",
    weight: 4,
    protocols,
    make: (operation) =>
      fc
        .tuple(validRequest(operation.rpc.input), fc.constantFrom("/", "x", "%00", "?a=b", "//", "/../", " ".trim()))
        .map(([valid, unusual]) => changed(operation, valid, (raw) => ({ ...raw, path: `${raw.path}${unusual}` }))),
  },
];

/** Possible errors in the frames of a unary call. */
const malformedFrames: Record<string, (message: Buffer) => Buffer> = {
  "compressed without grpc-encoding": (message) => grpcFrame(message, 1),
  "undefined flags": (message) => grpcFrame(message, 0xfe),
  "two messages": (message) => Buffer.concat([grpcFrame(message), grpcFrame(message)]),
  "no frame": () => Buffer.alloc(0),
  "incomplete frame header": (message) => grpcFrame(message).subarray(0, 3),
  "truncated message": (message) => grpcFrame(Buffer.concat([message, Buffer.from("ab")])).subarray(0, -1),
  "length too large": (message) => grpcFrame(message, 0, message.length + 10),
  "length of 4 GiB": (message) => grpcFrame(message, 0, 2 ** 32 - 1),
  "length too small": (message) => grpcFrame(message, 0, Math.max(0, message.length - 2)),
  "trailing bytes": (message) => Buffer.concat([grpcFrame(message), Buffer.of(0)]),
};

const compressions: readonly ((message: Buffer) => Buffer)[] = [
  (message) => gzipSync(message, { level: 1 }),
  (message) => message,
  (message) => gzipSync(message, { level: 1 }).subarray(0, 12),
];

/** Node's HTTP/2 client accepts some header names only once. */
function uniqueByName(headers: readonly (readonly [string, string])[]): (readonly [string, string])[] {
  return [...new Map(headers)];
}

function changed(
  operation: Operation,
  valid: Template,
  change: (raw: RawStream) => RawStream,
  expectation: Omit<Input, "raw"> = { form: "either" },
): Draft {
  return ({ credential, resolve }) => {
    const raw = toRawRequest("grpc", operation, credential, encode("grpc", operation, resolved(valid, resolve)));
    if (raw.by !== "http2") throw new Error("gRPC uses HTTP/2");
    return { raw: change(raw), ...expectation };
  };
}
