import { Code } from "@connectrpc/connect";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { isLatchkeyError, type Verifier } from "../../../src/verifier/verifier.js";
import { succeed } from "../../support/calls.js";
import { createWorkspace } from "../../support/clients/http-requests.js";
import { operatorKey } from "../../support/harness.js";
import {
  type CreatedKey,
  openScene,
  openTestVerifier,
  type Scene,
  verifyLocally,
} from "../../support/verifier-scene.js";

let scene: Scene;
beforeAll(async () => {
  // The verifier uses the first replica. The changes are made on the second.
  scene = await openScene(2);
});
afterAll(() => scene.close());

const update = (keyId: string, body: object) => scene.call("keys.updateKey", { keyId, ...body });

/** The codes of many verifications at once: those that answer locally, and those that ask. */
async function codesOf(verifier: Verifier, secret: string, permissions?: string): Promise<string[]> {
  const options = permissions === undefined ? {} : { permissions };
  const results = await Promise.all(Array.from({ length: 20 }, async () => verifier.verify(secret, options)));
  return [...new Set(results.map(({ code }) => code))];
}

describe("once a change on another replica has returned, no verification ignores it", () => {
  const revocations: [string, (key: CreatedKey) => Promise<unknown>, string][] = [
    ["disabled", ({ keyId }) => update(keyId, { enabled: false }), "DISABLED"],
    ["deleted", ({ keyId }) => scene.call("keys.deleteKey", { keyId }), "NOT_FOUND"],
    ["rerolled", ({ keyId }) => scene.call("keys.rerollKey", { keyId, expiration: 0 }), "EXPIRED"],
    ["without the permission", ({ keyId }) => update(keyId, { permissions: ["b"] }), "INSUFFICIENT_PERMISSIONS"],
  ];
  it.each(revocations)("a key that is %s", async (_how, revoke, code) => {
    const verifier = await openTestVerifier(scene);
    const key = await scene.createKey({ permissions: ["a"] });
    expect(await verifyLocally(verifier, key.key, "a")).toMatchObject({ valid: true, keyId: key.keyId });
    await revoke(key);
    expect(await codesOf(verifier, key.key, "a")).toEqual([code]);
    expect(await verifyLocally(verifier, (await scene.createKey()).key)).toMatchObject({ code: "VALID" });
  });

  it("a key that is enabled again, renamed, or whose identity has other meta", async () => {
    const verifier = await openTestVerifier(scene);
    const { keyId, key } = await scene.createKey({ enabled: false, externalId: "user_1" });
    expect(await verifyLocally(verifier, key)).toMatchObject({ valid: false, code: "DISABLED", keyId });
    await update(keyId, { enabled: true });
    expect(await codesOf(verifier, key)).toEqual(["VALID"]);
    await update(keyId, { name: "renamed" });
    expect(await verifier.verify(key)).toMatchObject({ name: "renamed", identity: { externalId: "user_1", meta: {} } });
    await verifyLocally(verifier, key);
    await scene.call("identities.updateIdentity", { externalId: "user_1", meta: { plan: "pro" } });
    expect(await verifier.verify(key)).toMatchObject({ identity: { meta: { plan: "pro" } } });
  });
});

it("a key is refused when its expiry is reached, without any message", async () => {
  const verifier = await openTestVerifier(scene);
  const expires = Date.now() + 4_000;
  const { key } = await scene.createKey({ expires });
  expect(await verifyLocally(verifier, key)).toMatchObject({ expires: new Date(expires) });
  // Verified all the time: no result after the expiry may be VALID.
  for (;;) {
    const begunAt = Date.now();
    const { code } = await verifier.verify(key);
    if (code === "EXPIRED") break;
    expect(code).toBe("VALID");
    expect(begunAt).toBeLessThan(expires);
    await new Promise(setImmediate);
  }
});

it("a key that was not found is found as soon as it is created", async () => {
  const verifier = await openTestVerifier(scene);
  const { keyId, key } = await scene.createKey();
  await scene.call("keys.deleteKey", { keyId });
  expect(await codesOf(verifier, key)).toEqual(["NOT_FOUND"]);
  for (let created = 0; created < 5; created++) {
    const other = await scene.createKey();
    expect(await codesOf(verifier, other.key)).toEqual(["VALID"]);
  }
});

describe("the caller's own revocation ends the stream at once, and no key is accepted any more", () => {
  const ends: [string, (caller: CreatedKey) => Promise<unknown>, string, Code][] = [
    ["disabled", ({ keyId }) => update(keyId, { enabled: false }), "key_disabled", Code.PermissionDenied],
    ["deleted", ({ keyId }) => scene.call("keys.deleteKey", { keyId }), "key_not_found", Code.Unauthenticated],
    [
      "rerolled",
      ({ keyId }) => scene.call("keys.rerollKey", { keyId, expiration: 0 }),
      "key_expired",
      Code.Unauthenticated,
    ],
    [
      "without its scope",
      ({ keyId }) => update(keyId, { scopes: ["keys.read"] }),
      "insufficient_permissions",
      Code.PermissionDenied,
    ],
  ];
  it.each(ends)("a caller that is %s", async (_how, revoke, code, status) => {
    const reasons: unknown[] = [];
    const caller = await scene.createKey({ scopes: ["keys.verify"] });
    const verifier = await openTestVerifier(scene, { key: caller.key, onDisconnect: (reason) => reasons.push(reason) });
    const { key } = await scene.createKey();
    await verifyLocally(verifier, key);
    await revoke(caller);
    const result = await Promise.resolve(verifier.verify(key)).catch((error) => error);
    expect(isLatchkeyError(result), String(result)).toBe(true);
    expect(result).toMatchObject({ code, status });
    expect(reasons[0]).toMatchObject({ code, status });
    expect(verifier.stats).toMatchObject({ isGranted: false, cachedKeys: 0 });
  });

  it("a caller whose expiry is reached", async () => {
    const expires = Date.now() + 3_000;
    const caller = await scene.createKey({ scopes: ["keys.verify"], expires });
    const verifier = await openTestVerifier(scene, { key: caller.key });
    const { key } = await scene.createKey();
    await verifyLocally(verifier, key);
    let refused: unknown;
    while (refused === undefined) {
      const begunAt = Date.now();
      await Promise.resolve(verifier.verify(key)).then(
        () => expect(begunAt).toBeLessThan(expires),
        (error) => {
          refused = error;
        },
      );
      await new Promise(setImmediate);
    }
    expect(refused).toMatchObject({ code: "key_expired" });
  });

  it("a workspace that is disabled, until it is enabled again", async () => {
    const { app, apps } = scene;
    const workspace = await createWorkspace(app.httpUrl);
    const operate = (operation: string, body: object) =>
      succeed((apps[1] ?? app).httpUrl, `workspaces.${operation}`, operatorKey, body);
    const verifier = await openTestVerifier(scene, { key: workspace.key });
    await verifyLocally(verifier, workspace.key);
    await operate("disableWorkspace", { workspaceId: workspace.workspaceId, reason: "OWNER_REQUEST" });
    await expect(Promise.resolve(verifier.verify(workspace.key))).rejects.toMatchObject({ code: "workspace_disabled" });
    await operate("enableWorkspace", { workspaceId: workspace.workspaceId });
    expect((await verifier.verify(workspace.key)).code).toBe("VALID");
    expect(await verifyLocally(verifier, workspace.key)).toMatchObject({ code: "VALID" });
  });
});

describe("a workspace that is deleted", () => {
  it("ends every verifier of its keys by itself, also if nobody has waited for its disabling", async () => {
    const { app, apps, sql } = scene;
    const { workspaceId, key } = await createWorkspace(app.httpUrl);
    const verifier = await openTestVerifier(scene, { key });
    await verifyLocally(verifier, key);
    // Disabled without an acknowledgement: only the deletion waits until every replica and verifier knows.
    await sql`
      update workspaces set disabled_at = now(), disabled_reason = 'ACCOUNT_CLOSURE' where workspace_id = ${workspaceId}`;
    await succeed((apps[1] ?? app).httpUrl, "workspaces.deleteWorkspace", operatorKey, { workspaceId });
    await expect(Promise.resolve(verifier.verify(key))).rejects.toMatchObject({ code: "key_not_found" });
    expect(verifier.stats).toMatchObject({ isGranted: false, cachedKeys: 0 });
  });
});

it("changes of other workspaces do not reach a stream", async () => {
  const verifier = await openTestVerifier(scene);
  const { key } = await scene.createKey();
  await verifyLocally(verifier, key);
  const { remote } = verifier.stats;
  const other = await createWorkspace(scene.app.httpUrl);
  for (let change = 0; change < 3; change++) await succeed(scene.app.httpUrl, "keys.createKey", other.key, {});
  await verifyLocally(verifier, key);
  expect(verifier.stats.cachedKeys).toBe(1);
  expect(verifier.stats.remote).toBe(remote);
});
