import { brotliCompressSync, constants } from "node:zlib";
import fc from "fast-check";
import { maxMessageBytes } from "../../../src/rpc/pipeline.js";
import {
  type Headers,
  type ProtocolName,
  protocolNames,
  type RawRequest,
  toRawRequest,
} from "../../support/clients/raw-request.js";
import { encode, type Kind } from "./kind.js";
import { largeBodies } from "./large-bodies.js";
import { resolved } from "./request.js";
import { validRequest } from "./valid-requests.js";

const maxBytes = Math.min(maxMessageBytes, 128 * 1024) - 64;

/** Sizes below and above the limit of a field, and at the limit of a body. */
const sizes = [1_000, 4_000, 16_000, 40_000, 90_000, maxBytes, maxBytes];

/** No valid request is as large as this. */
const invalidFrom = 40_000;

/** Requests of the maximum size, built to take as long as possible to process. */
export const largeKinds: readonly Kind[] = [
  {
    name: "large bodies",
    weight: 15,
    protocols: protocolNames,
    make: (operation, protocol) =>
      fc
        .tuple(fc.constantFrom(...largeBodies(operation, protocol)), fc.constantFrom(...sizes))
        .map(([{ make, location }, bytes]) => {
          const expected =
            bytes < invalidFrom ? ({ form: "either" } as const) : ({ form: "invalid", location } as const);
          return ({ credential }) => ({ raw: toRawRequest(protocol, operation, credential, make(bytes)), ...expected });
        }),
  },
  {
    name: "large bodies, compressed",
    weight: 2,
    protocols: ["connect", "connect-proto"],
    make: (operation, protocol) =>
      fc.constantFrom(...largeBodies(operation, protocol)).map(({ make }) => ({ credential }) => {
        const raw = toRawRequest(protocol, operation, credential, compressed(make(maxBytes)));
        const codes = ["application/invalid_input", "application/unsupported_media_type"];
        return { raw: withHeaders(raw, [["content-encoding", "br"]]), form: "invalid", codes };
      }),
  },
  {
    name: "large headers",
    weight: 5,
    protocols: protocolNames,
    make: (operation, protocol) =>
      fc
        .tuple(
          validRequest(operation.rpc.input),
          fc.constantFrom(...namesFor(protocol)),
          fc.constantFrom(",", "a,", "a;q=0.1,", "%", "=", " ", "a b", "1", "-", "gzip,", '"', "\\"),
          fc.constantFrom(1_000, 6_000, 13_000), // HTTP/2 adds 32 bytes per header
          fc.constantFrom(1, 1, 60),
        )
        .map(([valid, name, part, bytes, times]) => ({ credential, resolve }) => {
          const raw = toRawRequest(
            protocol,
            operation,
            credential,
            encode(protocol, operation, resolved(valid, resolve)),
          );
          const value = part.repeat(Math.floor(bytes / times / part.length)).trim();
          const headers = Array.from(
            { length: times },
            (_, index) => [times === 1 ? name : `x-${index}`, value] as const,
          );
          return { raw: withHeaders(raw, headers), form: "either", isTimed: true };
        }),
  },
];

function namesFor(protocol: ProtocolName): string[] {
  const common = ["accept", "traceparent", "tracestate", "idempotency-key", "user-agent", "cookie", "accept-encoding"];
  if (protocol === "grpc") return [...common, "grpc-timeout", "grpc-accept-encoding", "x-bin"];
  return [...common, "connect-timeout-ms", "if-none-match", "range", "x-forwarded-for"];
}

function withHeaders(raw: RawRequest, added: Headers): RawRequest {
  if (raw.by === "socket") throw new Error("raw bytes already contain their headers");
  return { ...raw, headers: [...raw.headers, ...added] };
}

function compressed(body: Buffer): Buffer {
  return brotliCompressSync(body, { params: { [constants.BROTLI_PARAM_QUALITY]: 1 } });
}
