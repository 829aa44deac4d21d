import { METHODS } from "node:http";
import { afterAll, describe, expect, it } from "vitest";
import {
  expectError,
  expectInvalid,
  expectSuccess,
  postText,
  send,
  sendBytes,
} from "../../support/clients/http-requests.js";
import { openFileService } from "../../support/file-service.js";

const { origin, key } = await openFileService();
afterAll(async () => {
  expectSuccess(await send(origin, "/v1/keys.listKeys", { key }));
});

describe("an unknown path returns 404 for every method", () => {
  it.each([
    ["GET", "/index.html"],
    ["POST", "/v3/keys.listKeys"],
    ["POST", "/v1/keys.listkeys"],
    ["POST", "/v1/keys.listKeys/"],
    ["POST", "//v1/keys.listKeys"],
    ["POST", "/v1/keys.createKey"],
    ["GET", "/v2/identities.createIdentity/x?y=z"],
    ["DELETE", "/v2"],
    ["OPTIONS", "/nothing"],
    ["TRACE", "/nothing"],
    ["PROPFIND", "/nothing"],
    ["GET", "/api-reference/errors-v2/service/data/nothing"],
    ["POST", "/latchkey.v1.KeysService/Nothing"],
    ["GET", "/__proto__"],
    ["GET", "/%00"],
    ["GET", "/%E2%82%AC/<script>"],
    ["GET", `/${"x".repeat(8_000)}`],
    ["POST", "/v1/keys%2elistKeys"],
    ["POST", "/%76%31/keys.listKeys"],
    ["POST", "/v2/workspaces%2ElistWorkspaces"],
    ["POST", "/latchkey.v1.KeysService%2FListKeys"],
    ["GET", "/docs%2Fswagger-ui.js"],
  ])("%s %s", async (method, path) => {
    expectError(await send(origin, path, { method }), 404, "application/route_not_found");
  });

  it("also for a path with a fragment", async () => {
    const response = await sendBytes(origin, "GET /livez#fragment HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n");
    expectError(response, 404, "application/route_not_found");
  });

  it("also with an invalid body", async () => {
    expectError(await postText(origin, "/v1/nothing", undefined, "{"), 404, "application/route_not_found");
  });
});

describe("an unsupported method returns 405, and Allow lists the supported methods", () => {
  it.each([
    ["GET", "/v1/keys.listKeys", "POST"],
    ["GET", "/v1/keys.listKeys?limit=1", "POST"],
    ["HEAD", "/v1/keys.listKeys", "POST"],
    ["PUT", "/v2/keys.createKey", "POST"],
    ["PATCH", "/v2/keys.createKey", "POST"],
    ["DELETE", "/v2/identities.deleteIdentity", "POST"],
    ["OPTIONS", "/v2/identities.createIdentity", "POST"],
    ["TRACE", "/v2/identities.createIdentity", "POST"],
    ["PROPFIND", "/v2/identities.createIdentity", "POST"],
    ["POST", "/v1/identities.listIdentities", "GET, HEAD"],
    ["DELETE", "/v1/identities.listIdentities", "GET, HEAD"],
    ["GET", "/v2/identities.listIdentities", "POST"],
    ["POST", "/v2/liveness", "GET, HEAD"],
    ["OPTIONS", "/v2/liveness", "GET, HEAD"],
    ["POST", "/api-reference/errors-v2/service/data/identity_not_found", "GET, HEAD"],
    ["GET", "/latchkey.v1.KeysService/ListKeys", "POST"],
    ["DELETE", "/latchkey.v1.KeysService/ListKeys", "POST"],
  ])("%s %s", async (method, path, allow) => {
    const response = await send(origin, path, { method });
    expect(response.headers.allow).toBe(allow);
    if (method === "HEAD") expect(response).toMatchObject({ status: 405, text: "" });
    else expectError(response, 405, "application/method_not_allowed");
  });

  it.each(
    METHODS.filter((method) => !["CONNECT", "GET", "HEAD", "POST"].includes(method)).flatMap((method) => [
      [method, "/livez"],
      [method, "/v1/keys.listKeys"],
    ]),
  )("%s %s without a content type", async (method, path) => {
    const response = await sendBytes(origin, `${method} ${path} HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n`);
    expectError(response, 405, "application/method_not_allowed");
  });

  it("before authentication, and without reading the body", async () => {
    const headers = { "content-type": "application/xml" };
    const response = await send(origin, "/v1/keys.listKeys", { method: "PUT", headers, body: "<a/>" });
    expectError(response, 405, "application/method_not_allowed");
  });
});

describe("a request to an RPC path in none of the RPC protocols gets an HTTP/JSON error", () => {
  const path = "/latchkey.v1.KeysService/ListKeys";

  it("without a credential", async () => {
    expectError(await send(origin, path), 401, "authentication/missing");
  });

  it("with an unsupported content type", async () => {
    const headers = { "content-type": "text/plain" };
    expectError(await send(origin, path, { key, headers, body: "{}" }), 415, "application/unsupported_media_type");
  });

  it("without a content type", async () => {
    expectError(await send(origin, path, { key }), 415, "application/unsupported_media_type");
  });
});

describe("a malformed URL returns 400", () => {
  it.each(["/%zz", "/v1/%", "/%c3%28", "/v1/keys.listKeys%f"])("%s", async (path) => {
    expectError(await send(origin, path, { method: "GET" }), 400, "application/invalid_input");
  });
});

describe("a query", () => {
  const list = (query: string) => send(origin, `/v1/identities.listIdentities${query}`, { method: "GET", key });

  it.each(["", "?", "?limit=1", "?limit=%31", "?&limit=1&"])("%j is accepted", async (query) => {
    expectSuccess(await list(query));
  });

  it.each([
    ["?surprise=1", ["surprise"]],
    ["?surprise", ["surprise"]],
    ["?__proto__=1", ["__proto__"]],
    ["?constructor=1&toString=2", ["constructor", "toString"]],
    ["?Limit=1", ["Limit"]],
    ["?limit[]=1", ["limit[]"]],
    ["?limit=x&surprise=1", ["limit", "surprise"]],
  ])("%s is refused, and the error names the unknown or invalid parameters", async (query, locations) => {
    expect(expectInvalid(await list(query))).toEqual(locations);
  });

  it.each(["?limit=1&limit=1", "?limit=1&limit=2"])("%s is refused as a duplicate parameter", async (query) => {
    expect(expectInvalid(await list(query))).toEqual(["limit"]);
  });

  it.each(["", "0", "-1", "101", "1.5", "1e1", "0x10", "ten", "99999999999", "%zz", "%00"])(
    "limit=%s is refused, and the error names it",
    async (limit) => {
      expect(expectInvalid(await list(`?limit=${limit}`))).toEqual(["limit"]);
    },
  );

  it("is refused, not silently ignored, on a path that takes its input in the body", async () => {
    expect(expectInvalid(await send(origin, "/v1/keys.listKeys?limit=1", { key }))).toEqual(["limit"]);
    expect(expectInvalid(await send(origin, "/v1/keys.listKeys?surprise=1", { key }))).toEqual(["surprise"]);
  });

  it("is not accepted as a place for the credential", async () => {
    const response = await send(origin, `/v1/identities.listIdentities?authorization=Bearer%20${key}`, {
      method: "GET",
    });
    expectError(response, 401, "authentication/missing");
  });
});
