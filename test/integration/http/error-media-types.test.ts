import { describe, expect, it } from "vitest";
import { expectError, expectSuccess, post, send } from "../../support/clients/http-requests.js";
import { openFileService, openRateLimitedService } from "../../support/file-service.js";
import { keyOperations, operationOf, operatorOperations } from "../../support/operations.js";

// Written by hand from the error classes of the client: it accepts each error under one media type only.
const json = "application/json; charset=utf-8";
const problem = "application/problem+json; charset=utf-8";

const { origin, key } = await openFileService();
const limited = await openRateLimitedService();

const deleteIdentity = "/v2/identities.deleteIdentity";
const others = [...keyOperations, ...operatorOperations].filter((name) => name !== "deleteIdentity");

describe("the media type of an error is application/json", () => {
  it.each(others)("of %s, without a credential", async (name) => {
    for (const [method, path] of operationOf(name).routes) {
      const response = await send(origin, path, { method });
      expectError(response, 401, "authentication/missing");
      expect(response.headers["content-type"]).toBe(json);
    }
  });

  it("of deleteIdentity, for an error that the client has no class for", async () => {
    const response = await send(origin, deleteIdentity, { key, headers: { "content-type": "text/plain" }, body: "x" });
    expectError(response, 415, "application/unsupported_media_type");
    expect(response.headers["content-type"]).toBe(json);
  });

  it("for invalid input, a missing resource and an unsupported method", async () => {
    const invalid = await post(origin, "/v2/keys.getKey", key, { keyId: "" });
    expectError(invalid, 400, "application/invalid_input");
    const missing = await post(origin, "/v2/keys.getKey", key, { keyId: "key_1" });
    expectError(missing, 404, "data/key_not_found");
    const unsupported = await send(origin, "/v2/keys.getKey", { method: "GET" });
    expectError(unsupported, 405, "application/method_not_allowed");
    for (const { headers } of [invalid, missing, unsupported]) expect(headers["content-type"]).toBe(json);
  });
});

describe("the media type of an error is application/problem+json", () => {
  it("of deleteIdentity, for each error that the client has a class for", async () => {
    const { key: powerless } = expectSuccess(await post(origin, "/v2/keys.createKey", key, {})) as { key: string };
    const invalid = await post(origin, deleteIdentity, key, { identity: "" });
    expectError(invalid, 400, "application/invalid_input");
    const unauthorized = await post(origin, deleteIdentity, undefined, { identity: "user_1" });
    expectError(unauthorized, 401, "authentication/missing");
    const forbidden = await post(origin, deleteIdentity, powerless, { identity: "user_1" });
    expectError(forbidden, 403, "authorization/insufficient_permissions");
    const missing = await post(origin, deleteIdentity, key, { identity: "user_1" });
    expectError(missing, 404, "data/identity_not_found");
    for (const { headers } of [invalid, unauthorized, forbidden, missing]) {
      expect(headers["content-type"]).toBe(problem);
    }
  });

  it("for an unknown path, so that it differs from a missing resource", async () => {
    for (const path of ["/v2/portal.createSession", "/nothing", "/v2/keys.getkey"]) {
      const response = await post(origin, path, key, {});
      expectError(response, 404, "application/route_not_found");
      expect(response.headers["content-type"]).toBe(problem);
    }
  });

  it.each(keyOperations)("of %s, above the rate limit of the workspace", async (name) => {
    for (const [method, path] of operationOf(name).routes) {
      const response = await send(limited.origin, path, { method, key: limited.key });
      expectError(response, 429, "limits/rate_limited");
      expect(response.headers["content-type"]).toBe(problem);
    }
  });
});
