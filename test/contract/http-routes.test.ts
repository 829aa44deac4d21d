import { describe, expect, test } from "vitest";
import { readResponse, sendRequest } from "../support/clients/http.js";
import { operatorKey } from "../support/harness.js";
import type { HttpRoute } from "../support/operations.js";
import type { ResponseData } from "../support/responses.js";
import { openContract } from "./cases.js";
import { openScene } from "./scene.js";

const contract = openContract();

function openHttpScene() {
  return openScene(contract.protocols.http, contract.clock);
}

describe("the documented routes", () => {
  test.each<readonly [HttpRoute[0], string]>([
    ["POST", "/v1/keys.listKeys"],
    ["POST", "/v2/keys.listKeys"],
  ])("%s %s lists the caller's keys", async (...route) => {
    const { home } = await openHttpScene();
    const outcome = await readResponse(await sendRequest(contract.app.httpUrl, route, home.key, {}), true);
    expect(outcome).toMatchObject({ ok: true, data: [{ keyId: home.keyId }], pagination: { hasMore: false } });
  });

  test.each<readonly [HttpRoute[0], string]>([
    ["POST", "/v1/identities.getIdentity"],
    ["POST", "/v2/identities.getIdentity"],
  ])("%s %s finds an identity", async (...route) => {
    const { home, ok } = await openHttpScene();
    const created = await ok("createIdentity", home.key, { externalId: "user_1" });
    const outcome = await readResponse(await sendRequest(contract.app.httpUrl, route, home.key, created), false);
    expect(outcome).toMatchObject({ ok: true, data: { ...created, externalId: "user_1" } });
  });

  test.each<readonly [HttpRoute[0], string]>([
    ["GET", "/v1/identities.listIdentities"],
    ["POST", "/v2/identities.listIdentities"],
  ])("%s %s lists the caller's identities, with pagination", async (...route) => {
    const { home, ok } = await openHttpScene();
    for (const externalId of ["user_1", "user_2", "user_3"]) await ok("createIdentity", home.key, { externalId });
    const list = async (request: Record<string, unknown>) =>
      readResponse(await sendRequest(contract.app.httpUrl, route, home.key, request), true);
    const first = await list({ limit: 2 });
    if (!first.ok) return expect.fail(first.detail);
    const second = await list({ limit: 2, cursor: first.pagination?.cursor });
    if (!second.ok) return expect.fail(second.detail);
    const rows = [
      ...(first.data as ResponseData["listIdentities"]),
      ...(second.data as ResponseData["listIdentities"]),
    ];
    expect(rows.map(({ externalId }) => externalId)).toEqual(["user_1", "user_2", "user_3"]);
  });

  test("POST /v2/identities.createIdentity creates an identity", async () => {
    const { home } = await openHttpScene();
    const route: HttpRoute = ["POST", "/v2/identities.createIdentity"];
    const request = { externalId: "user_123", meta: { name: "Ada", plan: "pro" } };
    const outcome = await readResponse(await sendRequest(contract.app.httpUrl, route, home.key, request), false);
    expect(outcome).toEqual({ ok: true, data: { identityId: expect.stringMatching(/^id_[0-9a-z]{26}$/) } });
  });

  test.each(["/v1/keys.listKeys", "/v2/keys.listKeys", "/v2/identities.listIdentities"])(
    "POST %s with a JSON content type and no body lists without a filter",
    async (path) => {
      const { home } = await openHttpScene();
      const headers = { Authorization: `Bearer ${home.key}`, "Content-Type": "application/json" };
      const response = await fetch(contract.app.httpUrl + path, { method: "POST", headers });
      expect(await readResponse(response, true)).toMatchObject({ ok: true, pagination: { hasMore: false } });
    },
  );

  test.each([
    "application/json",
    "application/json; charset=utf-8",
    "application/json;charset=UTF-8",
    "Application/JSON",
  ])("a body declared as %s is read", async (type) => {
    const { home } = await openHttpScene();
    const headers = { Authorization: `Bearer ${home.key}`, "Content-Type": type };
    const body = JSON.stringify({ externalId: "Zoë" });
    const url = `${contract.app.httpUrl}/v2/identities.createIdentity`;
    expect(await readResponse(await fetch(url, { method: "POST", headers, body }), false)).toMatchObject({ ok: true });
  });

  test("an operation without a result returns an empty object as data", async () => {
    const { home, ok, call } = await openHttpScene();
    await ok("createIdentity", home.key, { externalId: "user_1" });
    expect(await call("deleteIdentity", home.key, { externalId: "user_1" })).toEqual({ ok: true, data: {} });
  });

  test("a null field is treated as left out", async () => {
    const { home, ok } = await openHttpScene();
    const { identityId } = await ok("createIdentity", home.key, { externalId: "user_1", meta: null });
    await ok("getIdentity", home.key, { identityId, externalId: null, identity: null });
    const all = {
      name: null,
      prefix: null,
      identityId: null,
      externalId: null,
      scopes: null,
      permissions: null,
      meta: null,
    };
    await ok("createKey", home.key, { ...all, expires: null, enabled: null });
    expect(await ok("listKeys", home.key, { limit: null, cursor: null })).toHaveLength(2);
    await ok("disableWorkspace", operatorKey, { workspaceId: home.workspaceId, reason: "OWNER_REQUEST", note: null });
  });
});
