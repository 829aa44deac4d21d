import { gzipSync } from "node:zlib";
import { afterAll, describe, expect, it } from "vitest";
import { expectError, expectSuccess, postText, send } from "../../support/clients/http-requests.js";
import { openFileService } from "../../support/file-service.js";

const path = "/v2/identities.createIdentity";

const { origin, key } = await openFileService();
afterAll(async () => {
  // None of the refused requests stored anything, and the server still serves.
  expect(expectSuccess(await send(origin, "/v1/identities.listIdentities", { method: "GET", key }))).toEqual([]);
});

describe("a body whose headers declare uncompressed JSON is accepted", () => {
  it.each([
    { "content-type": "application/json" },
    { "content-type": "application/json; charset=utf-8" },
    { "content-type": "Application/JSON;charset=UTF-8" },
    { "content-type": "application/json", "content-encoding": "identity" },
    { "content-type": "application/json", "content-encoding": "Identity" },
  ])("%j", async (headers) => {
    expectSuccess(await send(origin, "/v1/keys.listKeys", { key, headers, body: '{"limit":1}' }));
  });
});

describe("a body whose headers do not declare uncompressed JSON is refused", () => {
  it.each(["text/plain", "application/xml", "application/x-www-form-urlencoded", "application/jsonp", "nonsense", ""])(
    "with content type %j",
    async (type) => {
      const response = await send(origin, path, { key, headers: { "content-type": type }, body: '{"externalId":"a"}' });
      expectError(response, 415, "application/unsupported_media_type");
    },
  );

  it("without a content type", async () => {
    const response = await send(origin, path, { key, body: '{"externalId":"a"}' });
    expectError(response, 415, "application/unsupported_media_type");
  });

  it.each(["gzip", "br", "identity, gzip", "nonsense"])("compressed, with content encoding %s", async (encoding) => {
    const headers = { "content-type": "application/json", "content-encoding": encoding };
    const response = await send(origin, path, { key, headers, body: gzipSync('{"externalId":"a"}') });
    expectError(response, 415, "application/unsupported_media_type");
    expect(response.headers["accept-encoding"]).toBe("identity");
  });
});

describe("a body over the size limit is refused", () => {
  const limit = 128 * 1024;
  const oversized = Buffer.alloc(limit + 1, " ");

  it("by its Content-Length", async () => {
    const response = await postText(origin, path, key, oversized);
    expect(expectError(response, 413, "application/payload_too_large").detail).toContain(`${limit} bytes`);
  });

  it("by its Content-Length alone, before any byte arrives", async () => {
    const headers = { "content-type": "application/json", "content-length": 10 ** 12, expect: "100-continue" };
    expectError(await send(origin, path, { key, headers }), 413, "application/payload_too_large");
  });

  it("by the received bytes of a chunked body", async () => {
    const headers = { "content-type": "application/json" };
    const response = await send(origin, path, { key, headers, chunks: [oversized, oversized] });
    expectError(response, 413, "application/payload_too_large");
  });

  it("and a body of exactly the limit is accepted", async () => {
    const body = Buffer.alloc(limit, " ");
    body.write("{}");
    expectSuccess(await postText(origin, "/v1/keys.listKeys", key, body));
  });
});
