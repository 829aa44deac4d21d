import { describe, expect, it } from "vitest";
import { expectError, expectSuccess, post, postText, send, sendBytes } from "../../support/clients/http-requests.js";
import { openFileService } from "../../support/file-service.js";

const { origin, key } = await openFileService();

describe("a successful response", () => {
  it("has meta with the request id, and data", async () => {
    const created = await post(origin, "/v2/identities.createIdentity", key, { externalId: "shape" });
    expect(expectSuccess(created)).toStrictEqual({ identityId: expect.stringMatching(/^id_[0-9a-z]{26}$/) });
    expect(Object.keys(JSON.parse(created.text))).toEqual(["meta", "data"]);
  });

  it("of a list has an array as data, and pagination without a cursor on the last page", async () => {
    const list = await post(origin, "/v1/keys.listKeys", key, {});
    expect(expectSuccess(list)).toEqual([expect.objectContaining({ enabled: true })]);
    expect(JSON.parse(list.text).pagination).toStrictEqual({ hasMore: false });
  });

  it("of an operation without a result has an empty object as data", async () => {
    await post(origin, "/v2/identities.createIdentity", key, { externalId: "short-lived" });
    const deleted = await post(origin, "/v2/identities.deleteIdentity", key, { externalId: "short-lived" });
    expect(expectSuccess(deleted)).toStrictEqual({});
  });

  it("has a unique request id for every request", async () => {
    const responses = await Promise.all([1, 2, 3].map(() => send(origin, "/v2/liveness", { method: "GET" })));
    const ids = responses.map((response) => {
      expect(expectSuccess(response)).toStrictEqual({ status: "alive" });
      return response.headers["x-request-id"];
    });
    expect(new Set(ids).size).toBe(3);
  });
});

describe("JSON ends with a newline, so that a shell prompt begins on its own line, and Content-Length counts it:", () => {
  it.each([
    ["a successful response", () => post(origin, "/v1/keys.listKeys", key, {})],
    ["a refused call", () => post(origin, "/v1/keys.listKeys", "lk_unknown", {})],
    ["an unknown path", () => send(origin, "/nothing")],
    ["the home page for curl", () => send(origin, "/", { method: "GET" })],
    ["a probe", () => send(origin, "/livez", { method: "GET" })],
  ])("%s", async (_name, call) => {
    const { headers, text } = await call();
    expect(text).toMatch(/^\{.*\}\n$/);
    expect(headers["content-length"]).toBe(String(Buffer.byteLength(text)));
  });
});

describe("responses have Cache-Control: no-store and X-Content-Type-Options: nosniff:", () => {
  const securityHeaders = { "cache-control": "no-store", "x-content-type-options": "nosniff" };

  it("a successful response, over each protocol", async () => {
    for (const path of ["/v2/keys.createKey", "/latchkey.v1.KeysService/CreateKey"]) {
      expect((await post(origin, path, key, {})).headers).toMatchObject(securityHeaders);
    }
  });

  it("an error response, over each protocol and to invalid HTTP", async () => {
    for (const path of ["/v2/keys.createKey", "/latchkey.v1.KeysService/CreateKey", "/nothing"]) {
      expect((await post(origin, path, undefined, {})).headers).toMatchObject(securityHeaders);
    }
    expect((await sendBytes(origin, "nonsense\r\n\r\n")).headers).toMatchObject(securityHeaders);
  });
});

describe("an empty body means {}", () => {
  it("with a JSON content type and Content-Length 0", async () => {
    expectSuccess(await postText(origin, "/v1/keys.listKeys", key, ""));
  });

  it("with a JSON content type and neither Content-Length nor a chunked body", async () => {
    const headers = { "content-type": "application/json; charset=utf-8" };
    expectSuccess(await send(origin, "/v1/keys.listKeys", { key, headers }));
  });

  it("with a JSON content type and an empty chunked body", async () => {
    const headers = { "content-type": "application/json", "transfer-encoding": "chunked" };
    expectSuccess(await send(origin, "/v1/keys.listKeys", { key, headers }));
  });

  it("without a content type", async () => {
    expectSuccess(await send(origin, "/v2/keys.listKeys", { key }));
  });

  it("and missing required fields are then named", async () => {
    const response = await postText(origin, "/v2/identities.createIdentity", key, "");
    const { errors } = expectError(response, 400, "application/invalid_input");
    expect(errors.map(({ location }) => location)).toEqual(["externalId"]);
  });
});

describe("a refused credential", () => {
  it("that is missing gets a Bearer challenge without an error code", async () => {
    const response = await post(origin, "/v1/keys.listKeys", undefined, {});
    expectError(response, 401, "authentication/missing");
    expect(response.headers["www-authenticate"]).toMatch(/^Bearer\b/);
    expect(response.headers["www-authenticate"]).not.toContain("error=");
  });

  it.each([
    ["another scheme", "Basic bGs6bGs="],
    ["no token after Bearer", "Bearer"],
    ["two tokens", "Bearer lk_a lk_b"],
    ["a token that is not a key", "Bearer lk_nonsense"],
    ["a very long token", `Bearer ${"x".repeat(8_000)}`],
  ])("with %s is malformed, with a Bearer challenge", async (_case, authorization) => {
    const response = await send(origin, "/v1/keys.listKeys", { headers: { authorization } });
    expectError(response, 401, "authentication/malformed");
    expect(response.headers["www-authenticate"]).toMatch(/^Bearer\b.*error="invalid_token"/);
  });

  it("that is sent twice is malformed, even if both are valid", async () => {
    const twice = `authorization: Bearer ${key}\r\n`.repeat(2);
    const request = `POST /v1/keys.listKeys HTTP/1.1\r\nhost: a\r\nconnection: close\r\n${twice}\r\n`;
    const response = await sendBytes(origin, request);
    expectError(response, 401, "authentication/malformed");
  });

  it("gets the authentication error, whatever is wrong with the body", async () => {
    const headers = { "content-type": "application/xml", "content-encoding": "gzip" };
    expectError(await send(origin, "/v1/keys.listKeys", { headers, body: "<a/>" }), 401, "authentication/missing");
    expectError(await postText(origin, "/v1/keys.listKeys", undefined, "{"), 401, "authentication/missing");
  });
});
