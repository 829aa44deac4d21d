import { connect } from "node:net";
import { brotliCompressSync, gzipSync } from "node:zlib";
import { fromBinary, toBinary } from "@bufbuild/protobuf";
import { describe, expect, it } from "vitest";
import { BadRequestSchema, ErrorInfoSchema } from "../../gen/google/rpc/error_details_pb.js";
import { CreateIdentityRequestSchema } from "../../gen/latchkey/v1/identities_service_pb.js";
import { createLog } from "../../src/observe/log.js";
import { succeed } from "../support/calls.js";
import { openProtocols } from "../support/clients/all.js";
import { expectInvalid, expectSuccess, type HttpResponse, send } from "../support/clients/http-requests.js";
import { toRequestMessage } from "../support/clients/messages.js";
import { openFileService } from "../support/file-service.js";

// Each case was found by the fuzzer.

const written: string[] = [];
const log = createLog("info", { destination: { write: (line: string) => void written.push(line) } });

const { app, origin, key } = await openFileService({ log });

const overHttp = "/v2/identities.createIdentity";
const overConnect = "/latchkey.v1.IdentitiesService/CreateIdentity";
const message = Buffer.from(
  toBinary(
    CreateIdentityRequestSchema,
    toRequestMessage(CreateIdentityRequestSchema, { externalId: "framed" }) as never,
  ),
);

function post(path: string, body: string | Buffer, headers: Record<string, string> = {}): Promise<HttpResponse> {
  return send(origin, path, { key, body, headers: { "content-type": "application/json", ...headers } });
}

function frame(bytes: Uint8Array, flags = 0, length = bytes.length): Buffer {
  const header = Buffer.of(flags, 0, 0, 0, 0);
  header.writeUInt32BE(length, 1);
  return Buffer.concat([header, bytes]);
}

/** The reason and the field names in the error details of a Connect response. */
function connectRefusal({ status, headers, text }: HttpResponse) {
  const { details = [] } = JSON.parse(text) as { details?: { type: string; value: string }[] };
  const bytesOf = (typeName: string) =>
    Buffer.from(details.find(({ type }) => type === typeName)?.value ?? "", "base64");
  const info = fromBinary(ErrorInfoSchema, bytesOf(ErrorInfoSchema.typeName));
  const { fieldViolations } = fromBinary(BadRequestSchema, bytesOf(BadRequestSchema.typeName));
  expect(headers["x-request-id"]).toBe(info.metadata["requestId"]);
  return { status, reason: info.reason, fields: fieldViolations.map(({ field }) => field) };
}

describe("a duplicate JSON member is refused and named, because parsers differ in which one they use", () => {
  it.each([
    ["at the top level", `{"externalId":"a","externalId":"b"}`, "externalId"],
    ["at the top level, once with escapes", `{"externalId":"a","external\\u0049d":"b"}`, "externalId"],
    ["inside meta", `{"externalId":"a","meta":{"x":{"y":1,"z":"\\\\\\"y","y":2}}}`, "meta"],
    ["in a list inside meta", `{"externalId":"a","meta":{"x":[1,{"y":":"},{"y":1,"y":1}]}}`, "meta"],
  ])("%s", async (_where, body, location) => {
    expect(expectInvalid(await post(overHttp, body))).toEqual([location]);
    expect(connectRefusal(await post(overConnect, body))).toMatchObject({ status: 400, fields: [location] });
  });

  it("strings and nested objects that only look like duplicates are accepted", async () => {
    const meta = `{"a":{"a":1},"b":[{"a":1},{"a":":,\\"a\\":"}],"c":"{\\"c\\":1,\\"c\\":2}\\\\"}`;
    await succeed(origin, "identities.createIdentity", key, { externalId: "plain", meta: JSON.parse(meta) });
    const stored = await succeed(origin, "identities.getIdentity", key, { externalId: "plain" });
    expect(stored).toMatchObject({ meta: JSON.parse(meta) });
  });
});

describe("the name of an unknown field in the error", () => {
  it("is quoted if it is empty: a body field", async () => {
    const body = `{"externalId":"a","":1}`;
    expect(expectInvalid(await post(overHttp, body))).toEqual([`""`]);
    expect(connectRefusal(await post(overConnect, body)).fields).toEqual([`""`]);
  });

  it("is quoted if it is empty: a query parameter", async () => {
    expect(expectInvalid(await send(origin, "/v1/identities.listIdentities?=1", { method: "GET", key }))).toEqual([
      `""`,
    ]);
  });

  it("is not truncated within a character", async () => {
    const [location = ""] = expectInvalid(await post(overHttp, JSON.stringify({ [`${"x".repeat(99)}🗝🗝`]: 1 })));
    expect(location.isWellFormed()).toBe(true);
  });
});

describe("property names of JavaScript prototypes in meta are returned unchanged over every protocol", () => {
  it.each(["__proto__", "constructor", "prototype", "toString", "$typeName"])("%s", async (name) => {
    const text = `{"${name}":{"${name}":[{"${name}":"a"}]}}`;
    const protocols = openProtocols(app);
    expectSuccess(await post(overHttp, `{"externalId":"of ${name}","meta":${text}}`));
    try {
      for (const protocol of [protocols.http, protocols.grpc, protocols.connect, protocols["grpc-web"]]) {
        const outcome = await protocol.call("getIdentity", key, { externalId: `of ${name}` });
        const { meta } = (outcome as unknown as { data: { meta: unknown } }).data;
        expect(JSON.stringify(meta), protocol.name).toBe(text);
      }
    } finally {
      protocols.close();
    }
  });
});

describe("errors that the Connect library itself would report have the error catalogue's details", () => {
  const gzip = (bytes: Buffer) => gzipSync(bytes);
  const json = Buffer.from(`{"externalId":"a"}`);

  it.each<[string, Buffer, Record<string, string>, string, string[]]>([
    ["text that is not UTF-8", Buffer.from(`{"externalId":"\xff"}`, "latin1"), {}, "INVALID_INPUT", ["body"]],
    ["an unknown compression", json, { "content-encoding": "zstd" }, "UNSUPPORTED_MEDIA_TYPE", []],
    ["a gzip body", gzip(json), { "content-encoding": "gzip" }, "UNSUPPORTED_MEDIA_TYPE", []],
    ["a brotli body", brotliCompressSync(json), { "content-encoding": "br" }, "UNSUPPORTED_MEDIA_TYPE", []],
    ["an uncompressed body declared as gzip", json, { "content-encoding": "gzip" }, "UNSUPPORTED_MEDIA_TYPE", []],
    [
      "a body that decompresses to more than the limit",
      gzip(Buffer.alloc(2 ** 23)),
      { "content-encoding": "gzip" },
      "UNSUPPORTED_MEDIA_TYPE",
      [],
    ],
    ["nothing, compressed", Buffer.alloc(0), { "content-encoding": "br" }, "UNSUPPORTED_MEDIA_TYPE", []],
    ["an invalid timeout", json, { "connect-timeout-ms": "soon" }, "INVALID_INPUT", ["connect-timeout-ms"]],
    ["an unsupported Expect header", json, { expect: "a miracle" }, "INVALID_INPUT", ["Expect"]],
  ])("%s", async (_what, body, headers, reason, fields) => {
    expect(connectRefusal(await post(overConnect, body, headers))).toMatchObject({ reason, fields });
  });

  it.each<[string, Buffer, Record<string, string>, string, string]>([
    ["half a frame header", frame(message).subarray(0, 3), {}, "3", "body"],
    ["a truncated message", frame(message).subarray(0, -1), {}, "3", "body"],
    ["two messages", Buffer.concat([frame(message), frame(message)]), {}, "3", "body"],
    ["no message", Buffer.alloc(0), {}, "3", "body"],
    ["unknown flags", frame(message, 2), {}, "3", "body"],
    ["a length over the limit", frame(message, 0, 2 ** 32 - 1), {}, "8", "larger than"],
    ["compression without grpc-encoding", frame(gzip(message), 1), {}, "12", "grpc-encoding"],
    ["a compressed frame", frame(gzip(message), 1), { "grpc-encoding": "gzip" }, "12", "grpc-encoding"],
    ["grpc-encoding of an uncompressed frame", frame(message), { "grpc-encoding": "gzip" }, "12", "grpc-encoding"],
    ["an invalid timeout", frame(message), { "grpc-timeout": "5" }, "3", "grpc-timeout"],
  ])("over gRPC-Web: %s", async (_what, body, more, status, expectedMessage) => {
    const { headers } = await post(overConnect, body, { "content-type": "application/grpc-web+proto", ...more });
    expect(headers["grpc-status"]).toBe(status);
    expect(decodeURIComponent(String(headers["grpc-message"]))).toContain(expectedMessage);
    expect(headers["grpc-status-details-bin"]).toBeDefined();
  });

  it("the response to a compressed request lists the accepted encodings", async () => {
    const overHttpOf = (path: string, headers: Record<string, string>) => post(path, gzip(json), headers);
    const gzipped = { "content-encoding": "gzip" };
    for (const path of [overHttp, overConnect]) {
      expect((await overHttpOf(path, gzipped)).headers["accept-encoding"]).toBe("identity");
    }
    const { headers } = await post(overConnect, frame(gzip(message), 1), {
      "content-type": "application/grpc-web+proto",
      "grpc-encoding": "gzip",
    });
    expect(headers["grpc-accept-encoding"]).toBe("identity");
  });

  it.each(["application/json; charset=latin1", "application/json;;;", "application/grpc-web-text"])(
    "the type %s",
    async (type) => {
      const response = await post(overConnect, json, { "content-type": type });
      expect(response.status).toBe(415);
      expect(JSON.parse(response.text).error.type).toMatch(/unsupported_media_type$/);
    },
  );

  it.each<[string, Buffer, Record<string, string>]>([
    ["an explicit identity encoding", Buffer.from(`{"externalId":"as it is"}`), { "content-encoding": "identity" }],
    [
      "an explicit charset",
      Buffer.from(`{"externalId":"by charset"}`),
      { "content-type": "application/json; charset=utf-8" },
    ],
    ["an uncompressed frame", frame(message), { "content-type": "application/grpc-web", "grpc-encoding": "identity" }],
  ])("accepted: %s", async (_what, body, headers) => {
    const response = await post(overConnect, body, headers);
    expect(response.text, response.text).toContain("id_");
  });
});

it("a client that disconnects while sending its body is not logged as a server error", async () => {
  const { hostname, port } = new URL(origin);
  const socket = connect(Number(port), hostname);
  socket.write(`POST ${overHttp} HTTP/1.1\r\nhost: a\r\nauthorization: Bearer ${key}\r\n`);
  socket.write('content-type: application/json\r\ncontent-length: 100\r\n\r\n{"externalId":');
  const before = written.length;
  setTimeout(() => socket.destroy(), 100);
  await expect.poll(() => written.slice(before).join(""), { timeout: 10_000 }).toContain("CreateIdentity");
  expect(written.slice(before).join("")).not.toContain("unexpected_error");
});
