import { describe, expect, it } from "vitest";
import { send } from "../../support/clients/http-requests.js";
import { openFileApp, openFileService } from "../../support/file-service.js";

const page = "https://app.example.com";
const otherPage = "http://localhost:3000";

let busy = false;
const guard = { accepts: () => !busy };
const { origin, key } = await openFileService({ corsOrigins: [page, otherPage], guard });
const open = await openFileApp({ corsOrigins: ["*"] });
const closed = await openFileApp();

/** The names of the headers that responses have by the OpenAPI document. */
const documentedHeaders = Object.keys(
  JSON.parse((await send(origin, "/openapi.json", { method: "GET" })).text).components.headers,
);

/** The headers of CORS in a response. */
function corsHeaders(headers: object) {
  return Object.fromEntries(Object.entries(headers).filter(([name]) => /^(access-control-|vary$)/.test(name)));
}

/** A preflight, as a browser sends it before a call with these headers. */
function preflight(service: string, path: string, from: string, headers: string[], method = "POST") {
  return send(service, path, {
    method: "OPTIONS",
    headers: {
      origin: from,
      "access-control-request-method": method,
      "access-control-request-headers": headers.join(","),
    },
  });
}

/** The calls that browsers make, with the headers that are not allowed without a preflight. */
const calls: [string, string, string[], string?][] = [
  ["HTTP/JSON", "/v2/keys.createKey", ["authorization", "content-type", "idempotency-key", "traceparent"]],
  [
    "Connect",
    "/latchkey.v1.KeysService/VerifyKey",
    ["authorization", "connect-protocol-version", "connect-timeout-ms"],
  ],
  ["gRPC-Web", "/latchkey.v1.KeysService/VerifyKey", ["authorization", "x-grpc-web", "x-user-agent", "grpc-timeout"]],
  ["the OpenAPI document", "/openapi.json", ["content-type"], "GET"],
];

describe.each([page, otherPage])("a page of the allowed origin %s", (from) => {
  it.each(calls)("gets a preflight for %s that allows its headers", async (_what, path, headers, method) => {
    const response = await preflight(origin, path, from, headers, method);
    expect(response).toMatchObject({ status: 204, text: "" });
    expect(response.headers).toMatchObject({ "access-control-allow-origin": from, vary: "Origin" });
    const list = (name: string) => String(response.headers[name]).toLowerCase().split(", ");
    expect(list("access-control-allow-headers")).toEqual(expect.arrayContaining(headers));
    expect(list("access-control-allow-methods")).toContain((method ?? "POST").toLowerCase());
    expect(response.headers, "no cookies").not.toHaveProperty("access-control-allow-credentials");
  });

  it.each([
    ["a success", "/v1/keys.listKeys", { key }, 200],
    ["a refused call", "/v1/keys.listKeys", {}, 401],
    ["an unknown path", "/nowhere", {}, 404],
    ["an error over Connect", "/latchkey.v1.KeysService/ListKeys", {}, 401],
  ])("can read the response of %s", async (_what, path, request, status) => {
    const headers = { origin: from, "content-type": "application/json" };
    const response = await send(origin, path, { ...request, headers, body: "{}" });
    expect(response.status).toBe(status);
    expect(response.headers["access-control-allow-origin"]).toBe(from);
    expect(response.headers.vary).toBe("Origin");
    const exposed = String(response.headers["access-control-expose-headers"]).toLowerCase().split(", ");
    for (const name of [...documentedHeaders, "grpc-status", "grpc-message", "grpc-status-details-bin"]) {
      expect(exposed).toContain(name.toLowerCase());
    }
  });

  it("can read that its call was shed", async () => {
    busy = true;
    const response = await send(origin, "/v1/keys.listKeys", { key, headers: { origin: from } }).finally(() => {
      busy = false;
    });
    expect(response).toMatchObject({ status: 503, headers: { "access-control-allow-origin": from, vary: "Origin" } });
  });
});

describe("a page of another origin", () => {
  it.each([`${page}.evil.example`, "http://app.example.com", "https://APP.example.com", "null", "*"])(
    "is not allowed: %s",
    async (from) => {
      const asked = await preflight(origin, "/v1/keys.listKeys", from, ["authorization"]);
      expect(asked.status).toBe(405);
      expect(corsHeaders(asked.headers)).toEqual({ vary: "Origin" });
      const called = await send(origin, "/v1/keys.listKeys", { key, headers: { origin: from } });
      expect(corsHeaders(called.headers)).toEqual({ vary: "Origin" });
    },
  );
});

it("a response that depends on other headers, too, names all of them, so that caches separate origins", async () => {
  for (const path of ["/", "/openapi.json"]) {
    const { headers } = await send(origin, path, { method: "GET", headers: { origin: page } });
    expect(headers.vary).toMatch(/^Origin, accept(-encoding)?$/);
  }
});

it("a request without an origin is served as without CORS, except that caches must know of origins", async () => {
  const { status, headers } = await send(origin, "/livez", { method: "GET" });
  expect(status).toBe(200);
  expect(corsHeaders(headers)).toEqual({ vary: "Origin" });
});

it("with *, all pages are allowed, and the response does not depend on the origin", async () => {
  const asked = await preflight(open.httpUrl, "/v1/keys.listKeys", "https://any.example", ["authorization"]);
  expect(asked).toMatchObject({ status: 204, headers: { "access-control-allow-origin": "*" } });
  const called = await send(open.httpUrl, "/v1/keys.listKeys", { headers: { origin: "null" } });
  expect(called.headers).toMatchObject({ "access-control-allow-origin": "*" });
  expect(called.headers).not.toHaveProperty("vary");
});

it("without origins, CORS is off: a preflight is a method that the path does not have", async () => {
  const asked = await preflight(closed.httpUrl, "/v1/keys.listKeys", page, ["authorization"]);
  expect(asked.status).toBe(405);
  expect(corsHeaders(asked.headers)).toEqual({});
  const called = await send(closed.httpUrl, "/v1/keys.listKeys", { headers: { origin: page } });
  expect(corsHeaders(called.headers)).toEqual({});
});
