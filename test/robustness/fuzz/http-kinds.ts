import { gzipSync } from "node:zlib";
import fc from "fast-check";
import { anyCharacter, goodRequest } from "./good-requests.js";
import { type Draft, encode, type Input, type Kind, spoilt } from "./kind.js";
import type { HttpRoute, Operation } from "./operations.js";
import { type Request, type Resolve, resolved, type Template } from "./request.js";
import { type BytesSent, type HttpSent, type ProtocolName, sentTo, wireOf } from "./sent.js";

const protocols: readonly ProtocolName[] = ["http", "connect", "connect-proto", "grpc-web"];
const mebibyte = 1024 * 1024;

/** Good requests in odd HTTP. */
export const httpKinds: readonly Kind[] = [
  {
    name: "good, by GET",
    weight: 3,
    protocols: ["http"],
    applies: ({ routes }) => routes.some(({ verb }) => verb === "GET"),
    make: (operation) => {
      const route = operation.routes.find(({ verb }) => verb === "GET") as HttpRoute;
      return goodRequest(operation.rpc.input).map(
        (good): Draft =>
          ({ credential, resolve }) => {
            const headers = [["authorization", `Bearer ${credential}`]] as const;
            const sent = {
              by: "http",
              verb: "GET",
              path: withQuery(route, resolved(good, resolve)),
              headers,
              body: Buffer.alloc(0),
            } as const;
            return { sent, form: "sound" };
          },
      );
    },
  },
  {
    name: "odd content types",
    protocols,
    make: (operation, protocol) =>
      fc
        .tuple(
          goodRequest(operation.rpc.input),
          fc.oneof(
            fc.constantFrom(
              "text/plain",
              "application/x-www-form-urlencoded",
              "application/json; charset=utf-16",
              "application/json;charset=latin1",
              "APPLICATION/JSON",
              "application/json;;;",
              "application/jsonx",
              "application/grpc",
              "application/grpc-web-text",
              "application/connect+json",
              "multipart/form-data; boundary=a",
              "application/json, text/plain",
              "*/*",
              "",
            ),
            fc.string({ maxLength: 40 }).map((any) => any.trim()),
          ),
        )
        .map(([good, type]) =>
          changed(operation, protocol, good, (sent) => ({
            ...sent,
            headers: sent.headers.map(([name, value]) => [name, name === "content-type" ? type : value] as const),
          })),
        ),
  },
  {
    name: "odd content encodings",
    protocols,
    make: (operation, protocol) =>
      fc
        .tuple(
          goodRequest(operation.rpc.input),
          fc.constantFrom("gzip", "br", "identity", "GZIP", "gzip, gzip", "zstd", ""),
          fc.boolean(),
        )
        .map(([good, encoding, isTrue]) =>
          changed(operation, protocol, good, (sent) => ({
            ...sent,
            headers: [...sent.headers, ["content-encoding", encoding]],
            body: isTrue ? gzipSync(sent.body, { level: 1 }) : sent.body,
          })),
        ),
  },
  {
    name: "a small body that expands",
    weight: 1,
    protocols: ["http", "connect", "connect-proto"],
    make: (operation, protocol) =>
      goodRequest(operation.rpc.input).map((good) =>
        changed(
          operation,
          protocol,
          good,
          (sent) => ({
            ...sent,
            headers: [...sent.headers, ["content-encoding", "gzip"]],
            body: expanding,
          }),
          { form: "unsound", codes: ["application/payload_too_large", "application/unsupported_media_type"] },
        ),
      ),
  },
  {
    name: "a body in pieces",
    protocols,
    make: (operation, protocol) =>
      fc
        .tuple(goodRequest(operation.rpc.input), fc.array(fc.nat(20), { minLength: 1, maxLength: 8 }))
        .map(([good, pieces]) =>
          changed(operation, protocol, good, (sent) => ({ ...sent, pieces }), { form: "sound" }),
        ),
  },
  {
    name: "odd chunks",
    protocols,
    make: (operation, protocol) =>
      fc
        .tuple(
          goodRequest(operation.rpc.input),
          fc.constantFrom(";a=b", ';a="\\""', "", ";", " "),
          fc.constantFrom(
            "0\r\n\r\n",
            "0\r\nx-a: b\r\n\r\n",
            "",
            "0\r\n",
            "-1\r\n\r\n",
            "fffffffffffffffff\r\n",
            "zz\r\n",
            "0\r\ncontent-length: 5\r\n\r\n",
          ),
        )
        .map(([good, extension, end]) =>
          bytes(operation, protocol, good, (sent) => {
            const size = `${sent.body.length.toString(16)}${extension}\r\n`;
            const chunks = Buffer.concat([Buffer.from(size), sent.body, Buffer.from(`\r\n${end}`)]);
            // After an empty chunk there is nothing left to cut off.
            const isCut = sent.body.length > 0 && (end === "" || end === "0\r\n");
            return { bytes: wireOf(sent, [["transfer-encoding", "chunked"]], chunks), isCut };
          }),
        ),
  },
  {
    name: "a Content-Length that lies",
    protocols,
    make: (operation, protocol) =>
      fc.tuple(goodRequest(operation.rpc.input), fc.constantFrom(1, 10, 5_000, -1, -5)).map(([good, more]) =>
        bytes(operation, protocol, good, (sent) => {
          const length = `${Math.max(0, sent.body.length + more)}`;
          return { bytes: wireOf(sent, [["content-length", length]], sent.body), isCut: more > 0 };
        }),
      ),
  },
  {
    name: "a request cut off",
    protocols,
    make: (operation, protocol) =>
      fc.tuple(goodRequest(operation.rpc.input), fc.nat()).map(([good, at]) =>
        bytes(
          operation,
          protocol,
          good,
          (sent) => {
            const whole = wireOf(sent, [["content-length", `${sent.body.length + 1}`]], sent.body);
            return { bytes: whole.subarray(0, 1 + (at % whole.length)), isCut: true };
          },
          { form: "unsound" },
        ),
      ),
  },
  {
    name: "odd headers",
    protocols,
    make: (operation, protocol) => {
      const value = fc.oneof(
        fc.string({
          unit: fc
            .integer({ min: 32, max: 255 })
            .filter((c) => c !== 127)
            .map((c) => String.fromCharCode(c)),
          maxLength: 50,
        }),
        fc.constantFrom("x".repeat(5_000), "x".repeat(20_000), "100-continue", "-1", "1e9", "0", "__proto__"),
      );
      const name = fc.constantFrom(
        ...[
          "x-a",
          "accept",
          "accept-encoding",
          "connect-timeout-ms",
          "connect-protocol-version",
          "grpc-timeout",
          "cookie",
        ],
        ...[
          "traceparent",
          "x-request-id",
          "x-forwarded-for",
          "expect",
          "grpc-encoding",
          "__proto__",
          "constructor",
          "te",
          "upgrade",
        ],
        ...["x-bin", "origin", "range", "if-none-match", "user-agent"],
      );
      return fc
        .tuple(
          goodRequest(operation.rpc.input),
          fc.array(fc.tuple(name, value), { minLength: 1, maxLength: 20 }),
          fc.constantFrom(1, 1, 1, 30),
        )
        .map(([good, more, times]) =>
          bytes(
            operation,
            protocol,
            good,
            (sent) => {
              const odd = Array.from({ length: times }, () => more).flat();
              const bytes = wireOf(sent, [["content-length", `${sent.body.length}`], ...odd], sent.body);
              return { bytes, isCut: false };
            },
            { form: "either", isTimed: true },
          ),
        );
    },
  },
  {
    name: "odd queries",
    protocols: ["http"],
    make: (operation, protocol) => {
      const names = fc.constantFrom(
        ...operation.rpc.input.fields.map(({ jsonName }) => jsonName),
        "__proto__",
        "constructor",
        "",
        "a[b]",
        "%00",
      );
      const part = fc.oneof(
        fc.string({ unit: anyCharacter, maxLength: 20 }).map(encodeURIComponent),
        fc.constantFrom("%", "%ff", "%00", "%zz", "&", "=", "+", "1", "100", "1e2", "-0"),
      );
      const query = fc.array(
        fc.tuple(names, part).map(([name, value]) => `${name}=${value}`),
        { minLength: 1, maxLength: 4 },
      );
      const route = fc.constantFrom(...operation.routes);
      return fc.tuple(goodRequest(operation.rpc.input), route, query).map(([good, { verb, path }, parts]) =>
        changed(operation, protocol, good, (sent) => ({ ...sent, verb, path: `${path}?${parts.join("&")}` }), {
          form: verb === "POST" ? "unsound" : "either",
        }),
      );
    },
  },
  {
    name: "odd paths",
    protocols,
    make: (operation, protocol) => {
      const odd = fc.constantFrom(
        "%",
        "%2e",
        "%2F",
        "%00",
        "%ff",
        "/",
        "//",
        "/..",
        "%e0%80%80",
        ";a=b",
        "#a",
        "\\",
        "%252e",
        "?",
        "/.",
        "~",
      );
      return fc.tuple(goodRequest(operation.rpc.input), odd, fc.nat(), fc.boolean()).map(([good, odd, at, isEncoded]) =>
        changed(operation, protocol, good, (sent) => {
          const { path } = sent;
          const where = 1 + (at % path.length);
          const encoded = `%${path.charCodeAt(where - 1).toString(16)}`;
          const changed = isEncoded
            ? `${path.slice(0, where - 1)}${encoded}${path.slice(where)}`
            : `${path.slice(0, where)}${odd}${path.slice(where)}`;
          return { ...sent, path: changed.startsWith("/") ? changed : `/${changed}` };
        }),
      );
    },
  },
  {
    name: "other methods",
    weight: 4,
    protocols,
    make: (operation, protocol) =>
      fc
        .tuple(
          goodRequest(operation.rpc.input),
          fc.constantFrom("PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "QUERY", "GET"),
        )
        .map(([good, verb]) => changed(operation, protocol, good, (sent) => ({ ...sent, verb }), { form: "either" })),
  },
  {
    name: "HEAD",
    protocols,
    make: (operation, protocol) =>
      goodRequest(operation.rpc.input).map((good): Draft => {
        const path = ({ routes, rpcPath }: Operation, resolve: Resolve) => {
          if (protocol !== "http") return rpcPath;
          const byGet = routes.find(({ verb }) => verb === "GET");
          return byGet ? withQuery(byGet, resolved(good, resolve)) : (routes[0]?.path ?? "");
        };
        return ({ credential, resolve }) => {
          const headers = [["authorization", `Bearer ${credential}`]] as const;
          const sent = { by: "http", path: path(operation, resolve), headers, body: Buffer.alloc(0) } as const;
          return { sent: { ...sent, verb: "GET" }, head: { ...sent, verb: "HEAD" }, form: "either" };
        };
      }),
  },
  {
    name: "oversized",
    weight: 1,
    protocols: [...protocols, "grpc"],
    make: (operation, protocol) =>
      fc
        .tuple(goodRequest(operation.rpc.input), fc.constantFrom(mebibyte / 8 + 1, mebibyte, 3 * mebibyte))
        .map(([good, size]) =>
          spoilt(operation, protocol, good, (body) => Buffer.concat([body, Buffer.alloc(size, " ")]), {
            form: "unsound",
            codes: ["application/payload_too_large"],
          }),
        ),
  },
];

function withQuery({ path }: HttpRoute, request: Request): string {
  const query = new URLSearchParams();
  for (const [name, given] of Object.entries(request)) query.append(name, `${given}`);
  return `${path}?${query}`;
}

const expanding = gzipSync(Buffer.alloc(20 * mebibyte, " "));

/** A good request that is sent by HTTP in a changed way. */
function changed(
  operation: Operation,
  protocol: ProtocolName,
  good: Template,
  change: (sent: HttpSent) => HttpSent,
  more: Omit<Input, "sent"> = { form: "either" },
): Draft {
  return (means) => ({ sent: change(soundly(operation, protocol, good, means)), ...more });
}

/** A good request, as bytes for a socket that are odd in some way. */
function bytes(
  operation: Operation,
  protocol: ProtocolName,
  good: Template,
  write: (sent: HttpSent) => Omit<BytesSent, "by">,
  more: Omit<Input, "sent"> = { form: "either" },
): Draft {
  return (means) => ({ sent: { by: "socket", ...write(soundly(operation, protocol, good, means)) }, ...more });
}

function soundly(
  operation: Operation,
  protocol: ProtocolName,
  good: Template,
  { credential, resolve }: Parameters<Draft>[0],
): HttpSent {
  const sent = sentTo(protocol, operation, credential, encode(protocol, operation, resolved(good, resolve)));
  if (sent.by !== "http") throw new Error(`${protocol} is not asked by HTTP/1.1`);
  return sent;
}
