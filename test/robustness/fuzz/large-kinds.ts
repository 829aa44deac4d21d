import { brotliCompressSync, constants } from "node:zlib";
import fc from "fast-check";
import { maxMessageBytes } from "../../../src/rpc/pipeline.js";
import { goodRequest } from "./good-requests.js";
import { encode, type Kind } from "./kind.js";
import { largeBodies } from "./large-bodies.js";
import { resolved } from "./request.js";
import { type Headers, type ProtocolName, protocolNames, type Sent, sentTo } from "./sent.js";

const largest = Math.min(maxMessageBytes, 128 * 1024) - 64;

/** Some below what a field may have, some above that, and some of what a body may have. */
const sizes = [1_000, 4_000, 16_000, 40_000, 90_000, largest, largest];

/** From here on, no request is right. */
const wrongFrom = 40_000;

/** Requests that are as large as they may be, to take as long as they can. */
export const largeKinds: readonly Kind[] = [
  {
    name: "large bodies",
    weight: 15,
    protocols: protocolNames,
    make: (operation, protocol) =>
      fc
        .tuple(fc.constantFrom(...largeBodies(operation, protocol)), fc.constantFrom(...sizes))
        .map(([{ make, location }, bytes]) => {
          const expected = bytes < wrongFrom ? ({ form: "either" } as const) : ({ form: "unsound", location } as const);
          return ({ credential }) => ({ sent: sentTo(protocol, operation, credential, make(bytes)), ...expected });
        }),
  },
  {
    name: "large bodies, compressed",
    weight: 2,
    protocols: ["connect", "connect-proto"],
    make: (operation, protocol) =>
      fc.constantFrom(...largeBodies(operation, protocol)).map(({ make }) => ({ credential }) => {
        const sent = sentTo(protocol, operation, credential, compressed(make(largest)));
        const codes = ["application/invalid_input", "application/unsupported_media_type"];
        return { sent: withHeaders(sent, [["content-encoding", "br"]]), form: "unsound", codes };
      }),
  },
  {
    name: "large headers",
    weight: 5,
    protocols: protocolNames,
    make: (operation, protocol) =>
      fc
        .tuple(
          goodRequest(operation.rpc.input),
          fc.constantFrom(...namesFor(protocol)),
          fc.constantFrom(",", "a,", "a;q=0.1,", "%", "=", " ", "a b", "1", "-", "gzip,", '"', "\\"),
          fc.constantFrom(1_000, 6_000, 13_000), // HTTP/2 counts 32 bytes more for each header
          fc.constantFrom(1, 1, 60),
        )
        .map(([good, name, part, bytes, times]) => ({ credential, resolve }) => {
          const sent = sentTo(protocol, operation, credential, encode(protocol, operation, resolved(good, resolve)));
          const value = part.repeat(Math.floor(bytes / times / part.length)).trim();
          const headers = Array.from(
            { length: times },
            (_, index) => [times === 1 ? name : `x-${index}`, value] as const,
          );
          return { sent: withHeaders(sent, headers), form: "either", isTimed: true };
        }),
  },
];

function namesFor(protocol: ProtocolName): string[] {
  const common = ["accept", "traceparent", "tracestate", "idempotency-key", "user-agent", "cookie", "accept-encoding"];
  if (protocol === "grpc") return [...common, "grpc-timeout", "grpc-accept-encoding", "x-bin"];
  return [...common, "connect-timeout-ms", "if-none-match", "range", "x-forwarded-for"];
}

function withHeaders(sent: Sent, more: Headers): Sent {
  if (sent.by === "socket") throw new Error("bytes have their headers in them");
  return { ...sent, headers: [...sent.headers, ...more] };
}

function compressed(body: Buffer): Buffer {
  return brotliCompressSync(body, { params: { [constants.BROTLI_PARAM_QUALITY]: 1 } });
}
