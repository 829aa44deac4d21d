import { describe, expect, test } from "vitest";
import { type HttpRoute, operationOf } from "../../support/operations.js";
import { refused, succeeding } from "./cases.js";
import { names, openStage } from "./stage.js";

const stage = openStage();
const { call, data, credentialFor } = stage;

describe("responses match the OpenAPI document, on each path:", () => {
  test.each(names)("%s, when it succeeds", async (name) => {
    for (const route of operationOf(name).routes) {
      expect(await call(route, credentialFor(name), await succeeding[name](stage))).toMatchObject({ status: 200 });
    }
  });

  test.each(names)("%s, with the errors that every call can have", async (name) => {
    const { routes, wellFormed, malformed } = operationOf(name);
    const { key: powerless } = await data<{ key: string }>("createKey", {});
    for (const route of routes) {
      expect(await call(route, [], wellFormed)).toMatchObject({ status: 401 });
      expect(await call(route, `${powerless}x`, wellFormed)).toMatchObject({ status: 401 });
      expect(await call(route, powerless, wellFormed)).toMatchObject({ status: 403 });
      expect(await call(route, credentialFor(name), malformed)).toMatchObject({ status: 400 });
      expect(await call(route, credentialFor(name), { surprise: 1 })).toMatchObject({ status: 400 });
    }
  });

  test("a disabled workspace, for every operation", async () => {
    const { workspaceId, key } = await data<{ workspaceId: string; key: string }>("createWorkspace", { name: "away" });
    await data("disableWorkspace", { workspaceId, reason: "OWNER_REQUEST" });
    for (const { routes, wellFormed } of names.map(operationOf)) {
      expect(await call(routes[0], key, wellFormed)).toMatchObject({ code: "authorization/workspace_disabled" });
    }
  });

  test.each<[string, number, RequestInit]>([
    ["a body that is not JSON", 415, { headers: { "content-type": "text/plain" }, body: "{}" }],
    ["a body that is too large", 413, { headers: { "content-type": "application/json" }, body: " ".repeat(1_100_000) }],
    ["a method that the path does not support", 405, { method: "DELETE" }],
  ])("%s", async (_what, status, sent) => {
    const route: HttpRoute = ["POST", "/v2/keys.createKey"];
    const headers = { authorization: `Bearer ${stage.home.key}`, ...(sent.headers as Record<string, string>) };
    const response = await fetch(stage.app.httpUrl + route[1], { method: "POST", ...sent, headers });
    expect(response.status).toBe(status);
    await stage.reference.holds(route, response);
  });

  test.each(["/v2/liveness", "/livez", "/readyz"])("GET %s", async (path) => {
    const response = await fetch(stage.app.httpUrl + path);
    expect(response.status).toBe(200);
    await stage.reference.holds(["GET", path], response);
  });
});

test.each(names)("%s can return every error that its RPC declares", async (name) => {
  const { routes, acceptsIdempotencyKey, wellFormed } = operationOf(name);
  const [route] = routes;
  const codes: (string | undefined)[] = [];
  for (const makeRequest of refused[name]) {
    codes.push((await call(route, credentialFor(name), await makeRequest(stage))).code);
  }
  if (acceptsIdempotencyKey) {
    const key = [["idempotency-key", `of ${name}`]] as const;
    await call(route, credentialFor(name), await succeeding[name](stage), key);
    codes.push((await call(route, credentialFor(name), wellFormed, key)).code);
  }
  const declared = [404, 409].flatMap((status) => stage.reference.codes(route, status));
  expect(codes.sort()).toEqual(declared.filter((code) => code.startsWith("data/")).sort());
});
