import { gzipSync } from "node:zlib";
import fc from "fast-check";
import {
  encodeHttp1,
  type ProtocolName,
  type RawBytes,
  type RawHttpRequest,
  toRawRequest,
} from "../../support/clients/raw-request.js";
import { corrupted, type Draft, encode, type Input, type Kind } from "./kind.js";
import type { HttpRoute, Operation } from "./operations.js";
import { type Request, type Resolve, resolved, type Template } from "./request.js";
import { anyCharacter, validRequest } from "./valid-requests.js";

const protocols: readonly ProtocolName[] = ["http", "connect", "connect-proto", "grpc-web"];
const mebibyte = 1024 * 1024;

/** Valid requests with unusual HTTP framing, headers, paths and methods. */
export const httpKinds: readonly Kind[] = [
  {
    name: "valid GET requests",
    weight: 3,
    protocols: ["http"],
    applies: ({ routes }) => routes.some(({ verb }) => verb === "GET"),
    make: (operation) => {
      const route = operation.routes.find(({ verb }) => verb === "GET") as HttpRoute;
      return validRequest(operation.rpc.input).map(
        (valid): Draft =>
          ({ credential, resolve }) => {
            const headers = [["authorization", `Bearer ${credential}`]] as const;
            const raw = {
              by: "http",
              verb: "GET",
              path: withQuery(route, resolved(valid, resolve)),
              headers,
              body: Buffer.alloc(0),
            } as const;
            return { raw, form: "valid" };
          },
      );
    },
  },
  {
    name: "unusual content types",
    protocols,
    make: (operation, protocol) =>
      fc
        .tuple(
          validRequest(operation.rpc.input),
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
        .map(([valid, type]) =>
          changed(operation, protocol, valid, (raw) => ({
            ...raw,
            headers: raw.headers.map(([name, value]) => [name, name === "content-type" ? type : value] as const),
          })),
        ),
  },
  {
    name: "unusual content encodings",
    protocols,
    make: (operation, protocol) =>
      fc
        .tuple(
          validRequest(operation.rpc.input),
          fc.constantFrom("gzip", "br", "identity", "GZIP", "gzip, gzip", "zstd", ""),
          fc.boolean(),
        )
        .map(([valid, encoding, isCompressed]) =>
          changed(operation, protocol, valid, (raw) => ({
            ...raw,
            headers: [...raw.headers, ["content-encoding", encoding]],
            body: isCompressed ? gzipSync(raw.body, { level: 1 }) : raw.body,
          })),
        ),
  },
  {
    name: "decompression bomb",
    weight: 1,
    protocols: ["http", "connect", "connect-proto"],
    make: (operation, protocol) =>
      validRequest(operation.rpc.input).map((valid) =>
        changed(
          operation,
          protocol,
          valid,
          (raw) => ({
            ...raw,
            headers: [...raw.headers, ["content-encoding", "gzip"]],
            body: decompressionBomb,
          }),
          { form: "invalid", codes: ["application/payload_too_large", "application/unsupported_media_type"] },
        ),
      ),
  },
  {
    name: "body in several chunks",
    protocols,
    make: (operation, protocol) =>
      fc
        .tuple(validRequest(operation.rpc.input), fc.array(fc.nat(20), { minLength: 1, maxLength: 8 }))
        .map(([valid, pieces]) =>
          changed(operation, protocol, valid, (raw) => ({ ...raw, pieces }), { form: "valid" }),
        ),
  },
  {
    name: "unusual chunked encoding",
    protocols,
    make: (operation, protocol) =>
      fc
        .tuple(
          validRequest(operation.rpc.input),
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
        .map(([valid, extension, end]) =>
          bytes(operation, protocol, valid, (raw) => {
            const size = `${raw.body.length.toString(16)}${extension}\r\n`;
            const chunks = Buffer.concat([Buffer.from(size), raw.body, Buffer.from(`\r\n${end}`)]);
            // An empty body ends with its first chunk, so the request is complete.
            const isTruncated = raw.body.length > 0 && (end === "" || end === "0\r\n");
            return { bytes: encodeHttp1(raw, [["transfer-encoding", "chunked"]], chunks), isTruncated };
          }),
        ),
  },
  {
    name: "wrong Content-Length",
    protocols,
    make: (operation, protocol) =>
      fc.tuple(validRequest(operation.rpc.input), fc.constantFrom(1, 10, 5_000, -1, -5)).map(([valid, excess]) =>
        bytes(operation, protocol, valid, (raw) => {
          const length = `${Math.max(0, raw.body.length + excess)}`;
          return { bytes: encodeHttp1(raw, [["content-length", length]], raw.body), isTruncated: excess > 0 };
        }),
      ),
  },
  {
    name: "truncated request",
    protocols,
    make: (operation, protocol) =>
      fc.tuple(validRequest(operation.rpc.input), fc.nat()).map(([valid, at]) =>
        bytes(
          operation,
          protocol,
          valid,
          (raw) => {
            const complete = encodeHttp1(raw, [["content-length", `${raw.body.length + 1}`]], raw.body);
            return { bytes: complete.subarray(0, 1 + (at % complete.length)), isTruncated: true };
          },
          { form: "invalid" },
        ),
      ),
  },
  {
    name: "unusual headers",
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
          validRequest(operation.rpc.input),
          fc.array(fc.tuple(name, value), { minLength: 1, maxLength: 20 }),
          fc.constantFrom(1, 1, 1, 30),
        )
        .map(([valid, added, times]) =>
          bytes(
            operation,
            protocol,
            valid,
            (raw) => {
              const unusual = Array.from({ length: times }, () => added).flat();
              const bytes = encodeHttp1(raw, [["content-length", `${raw.body.length}`], ...unusual], raw.body);
              return { bytes, isTruncated: false };
            },
            { form: "either", isTimed: true },
          ),
        );
    },
  },
  {
    name: "unusual queries",
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
      return fc.tuple(validRequest(operation.rpc.input), route, query).map(([valid, { verb, path }, parts]) =>
        changed(operation, protocol, valid, (raw) => ({ ...raw, verb, path: `${path}?${parts.join("&")}` }), {
          form: verb === "POST" ? "invalid" : "either",
        }),
      );
    },
  },
  {
    name: "unusual paths",
    protocols,
    make: (operation, protocol) => {
      const unusual = fc.constantFrom(
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
      return fc
        .tuple(validRequest(operation.rpc.input), unusual, fc.nat(), fc.boolean())
        .map(([valid, unusual, at, isEncoded]) =>
          changed(operation, protocol, valid, (raw) => {
            const { path } = raw;
            const where = 1 + (at % path.length);
            const encoded = `%${path.charCodeAt(where - 1).toString(16)}`;
            const changed = isEncoded
              ? `${path.slice(0, where - 1)}${encoded}${path.slice(where)}`
              : `${path.slice(0, where)}${unusual}${path.slice(where)}`;
            return { ...raw, path: changed.startsWith("/") ? changed : `/${changed}` };
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
          validRequest(operation.rpc.input),
          fc.constantFrom("PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "QUERY", "GET"),
        )
        .map(([valid, verb]) => changed(operation, protocol, valid, (raw) => ({ ...raw, verb }), { form: "either" })),
  },
  {
    name: "HEAD",
    protocols,
    make: (operation, protocol) =>
      validRequest(operation.rpc.input).map((valid): Draft => {
        const path = ({ routes, rpcPath }: Operation, resolve: Resolve) => {
          if (protocol !== "http") return rpcPath;
          const getRoute = routes.find(({ verb }) => verb === "GET");
          return getRoute ? withQuery(getRoute, resolved(valid, resolve)) : (routes[0]?.path ?? "");
        };
        return ({ credential, resolve }) => {
          const headers = [["authorization", `Bearer ${credential}`]] as const;
          const raw = { by: "http", path: path(operation, resolve), headers, body: Buffer.alloc(0) } as const;
          return { raw: { ...raw, verb: "GET" }, headRequest: { ...raw, verb: "HEAD" }, form: "either" };
        };
      }),
  },
  {
    name: "oversized",
    weight: 1,
    protocols: [...protocols, "grpc"],
    make: (operation, protocol) =>
      fc
        .tuple(validRequest(operation.rpc.input), fc.constantFrom(mebibyte / 8 + 1, mebibyte, 3 * mebibyte))
        .map(([valid, size]) =>
          corrupted(operation, protocol, valid, (body) => Buffer.concat([body, Buffer.alloc(size, " ")]), {
            form: "invalid",
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

const decompressionBomb = gzipSync(Buffer.alloc(20 * mebibyte, " "));

/** A valid request with a change to its HTTP form. */
function changed(
  operation: Operation,
  protocol: ProtocolName,
  valid: Template,
  change: (raw: RawHttpRequest) => RawHttpRequest,
  expectation: Omit<Input, "raw"> = { form: "either" },
): Draft {
  return (context) => ({ raw: change(validHttpRequest(operation, protocol, valid, context)), ...expectation });
}

/** A valid request as raw bytes for a socket, with a change to its framing. */
function bytes(
  operation: Operation,
  protocol: ProtocolName,
  valid: Template,
  write: (raw: RawHttpRequest) => Omit<RawBytes, "by">,
  expectation: Omit<Input, "raw"> = { form: "either" },
): Draft {
  return (context) => ({
    raw: { by: "socket", ...write(validHttpRequest(operation, protocol, valid, context)) },
    ...expectation,
  });
}

function validHttpRequest(
  operation: Operation,
  protocol: ProtocolName,
  valid: Template,
  { credential, resolve }: Parameters<Draft>[0],
): RawHttpRequest {
  const raw = toRawRequest(protocol, operation, credential, encode(protocol, operation, resolved(valid, resolve)));
  if (raw.by !== "http") throw new Error(`${protocol} does not use HTTP/1.1`);
  return raw;
}
