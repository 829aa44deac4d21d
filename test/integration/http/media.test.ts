import { gzipSync } from "node:zlib";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { ask, createWorkspace, expectFailure, expectSuccess, postText } from "../../support/clients/http-requests.js";
import { openTestApp, type TestApp } from "../../support/harness.js";

const path = "/v2/identities.createIdentity";

let app: TestApp;
let origin: string;
let key: string;

beforeAll(async () => {
  app = await openTestApp();
  origin = app.httpUrl;
  key = (await createWorkspace(origin)).key;
});
afterAll(async () => {
  // Whatever was refused, nothing of it was stored and the server still serves.
  expect(expectSuccess(await ask(origin, "/v1/identities.listIdentities", { method: "GET", key }))).toEqual([]);
  await app.close();
});

describe("a body of plain JSON by its headers is read", () => {
  it.each([
    { "content-type": "application/json" },
    { "content-type": "application/json; charset=utf-8" },
    { "content-type": "Application/JSON;charset=UTF-8" },
    { "content-type": "application/json", "content-encoding": "identity" },
    { "content-type": "application/json", "content-encoding": "Identity" },
  ])("%j", async (headers) => {
    expectSuccess(await ask(origin, "/v1/keys.listKeys", { key, headers, body: '{"limit":1}' }));
  });
});

describe("a body that is not plain JSON by its headers is refused", () => {
  it.each(["text/plain", "application/xml", "application/x-www-form-urlencoded", "application/jsonp", "nonsense", ""])(
    "as content type %j",
    async (type) => {
      const answer = await ask(origin, path, { key, headers: { "content-type": type }, body: '{"externalId":"a"}' });
      expectFailure(answer, 415, "application/unsupported_media_type");
    },
  );

  it("without a content type", async () => {
    const answer = await ask(origin, path, { key, body: '{"externalId":"a"}' });
    expectFailure(answer, 415, "application/unsupported_media_type");
  });

  it.each(["gzip", "br", "identity, gzip", "nonsense"])("as content encoding %s", async (encoding) => {
    const headers = { "content-type": "application/json", "content-encoding": encoding };
    const answer = await ask(origin, path, { key, headers, body: gzipSync('{"externalId":"a"}') });
    expectFailure(answer, 415, "application/unsupported_media_type");
    expect(answer.headers["accept-encoding"]).toBe("identity");
  });
});

describe("a body that is too large is refused", () => {
  const limit = 128 * 1024;
  const large = Buffer.alloc(limit + 1, " ");

  it("by its Content-Length", async () => {
    const answer = await postText(origin, path, key, large);
    expect(expectFailure(answer, 413, "application/payload_too_large").detail).toContain(`${limit} bytes`);
  });

  it("by a Content-Length alone, before any byte of it", async () => {
    const headers = { "content-type": "application/json", "content-length": 10 ** 12, expect: "100-continue" };
    expectFailure(await ask(origin, path, { key, headers }), 413, "application/payload_too_large");
  });

  it("by the bytes that arrive in chunks", async () => {
    const headers = { "content-type": "application/json" };
    const answer = await ask(origin, path, { key, headers, chunks: [large, large] });
    expectFailure(answer, 413, "application/payload_too_large");
  });

  it("and one of exactly the limit is read", async () => {
    const body = Buffer.alloc(limit, " ");
    body.write("{}");
    expectSuccess(await postText(origin, "/v1/keys.listKeys", key, body));
  });
});
