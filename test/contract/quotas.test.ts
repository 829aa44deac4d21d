import type postgres from "postgres";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { openSql } from "../../commands/open-sql.js";
import type { CallRequest } from "../support/clients/protocol-client.js";
import { operatorKey } from "../support/harness.js";
import { findPartialChanges } from "../support/integrity.js";
import type { OperationName } from "../support/operations.js";
import { newHash } from "./callers.js";
import { allProtocols, openContract } from "./cases.js";
import { newKey } from "./retries.js";
import type { Scene } from "./scene.js";

const exceeded = "limits/quota_exceeded";

describe("a workspace that has reached its quota of keys", () => {
  const contract = openContract(
    allProtocols,
    { quotas: { keys: 3, identities: 100, bytes: 1e9 } },
    { alwaysInTurn: true },
  );

  async function fill({ ok, home }: Scene) {
    const first = await ok("createKey", home.key, { name: "first", permissions: ["a", "b"] });
    const second = await ok("createKey", home.key, { externalId: "user_1" });
    return { first, second };
  }

  contract.everyProtocol(
    "cannot create another key: the error names the quota, its limit and the remedy",
    async (scene) => {
      const { first } = await fill(scene);
      for (const [operation, request] of [
        ["createKey", {}],
        ["createKey", { externalId: "user_1" }],
        ["createKey", { externalId: "somebody new" }],
        ["rerollKey", { keyId: first.keyId, expiration: 0 }],
        ["migrateKeys", { migrationId: "m", keys: [{ hash: newHash() }] }],
        ["migrateKeys", { migrationId: "m", keys: [{ hash: newHash(), externalId: "somebody new" }] }],
      ] as [OperationName, CallRequest][]) {
        const { detail } = await scene.refused(exceeded, operation, scene.home.key, request);
        expect(detail).toBe(
          "This workspace has reached its quota of 3 keys. Delete keys that are no longer needed, or ask the operator for a larger quota.",
        );
      }
      expect(await scene.ok("listKeys", scene.home.key)).toHaveLength(3);
      const identities = await scene.ok("listIdentities", scene.home.key);
      expect(identities.map(({ externalId }) => externalId)).toEqual(["user_1"]);
      expect(await scene.ok("verifyKey", scene.home.key, { key: first.key })).toMatchObject({ valid: true });
    },
  );

  contract.everyProtocol("can create one more for each that is deleted", async (scene) => {
    const { first } = await fill(scene);
    await scene.ok("deleteKey", scene.home.key, { keyId: first.keyId });
    await scene.ok("createKey", scene.home.key);
    await scene.refused(exceeded, "createKey", scene.home.key);
  });

  contract.everyProtocol(
    "can still change its keys and identities, and other workspaces are not affected",
    async (scene) => {
      const { first } = await fill(scene);
      await scene.ok("updateKey", scene.home.key, { keyId: first.keyId, name: "other", externalId: "somebody new" });
      await scene.ok("createIdentity", scene.home.key, { externalId: "user_2" });
      const other = await scene.newWorkspace();
      await scene.ok("createKey", other.key);
    },
  );

  contract.everyProtocol("returns the first response to a retry with the same Idempotency-Key", async (scene) => {
    const repeated = [["idempotency-key", "nightly"]] as const;
    await scene.ok("createKey", scene.home.key);
    const made = await scene.ok("createKey", scene.home.key, { name: "last" }, repeated);
    expect(await scene.ok("createKey", scene.home.key, { name: "last" }, repeated)).toEqual(made);
    await scene.refused(exceeded, "createKey", scene.home.key, { name: "last" });
  });

  contract.everyProtocol(
    "gets the same error for an unknown identity as for a known one: the quota is checked first",
    async (scene) => {
      await fill(scene);
      await scene.refused(exceeded, "createKey", scene.home.key, { identityId: "id_00000000000000000000000000" });
    },
  );
});

describe("a workspace that has reached its quota of identities", () => {
  const contract = openContract(
    allProtocols,
    { quotas: { keys: 100, identities: 2, bytes: 1e9 } },
    { alwaysInTurn: true },
  );

  contract.everyProtocol(
    "cannot create another identity by any operation, and one more for each that is deleted",
    async (scene) => {
      const { ok, home, refused } = scene;
      await ok("createIdentity", home.key, { externalId: "user_1" });
      const { keyId } = await ok("createKey", home.key, { externalId: "user_2" });
      for (const [operation, request] of [
        ["createIdentity", { externalId: "user_3" }],
        ["createIdentity", { externalId: "user_1" }],
        ["createKey", { externalId: "user_3" }],
        ["updateKey", { keyId, externalId: "user_3" }],
        ["migrateKeys", { migrationId: "m", keys: [{ hash: newHash(), externalId: "user_3" }] }],
      ] as [OperationName, CallRequest][]) {
        const { detail } = await refused(exceeded, operation, home.key, request);
        expect(detail).toContain("quota of 2 identities");
      }
      // Existing identities can be used.
      await ok("createKey", home.key, { externalId: "user_1" });
      await ok("updateKey", home.key, { keyId, externalId: "user_1" });
      await ok("updateIdentity", home.key, { externalId: "user_1", meta: { plan: "pro" } });
      await ok("deleteIdentity", home.key, { externalId: "user_2" });
      await ok("createIdentity", home.key, { externalId: "user_2" });
      await refused(exceeded, "createIdentity", home.key, { externalId: "user_3" });
    },
  );

  test("concurrent creates exceed the quota by at most the number in flight, and no later create exceeds it", async () => {
    const { key } = (await contract.protocols.http
      .call("createWorkspace", operatorKey, { name: "busy" })
      .then((made) => (made.ok ? made.data : expect.fail(made.detail)))) as { key: string };
    const create = (round: number) => async (_: unknown, index: number) => {
      const protocol = contract.protocols[allProtocols[index % allProtocols.length] ?? "http"];
      const outcome = await protocol.call("createIdentity", key, { externalId: `user_${round}_${index}` });
      return outcome.ok ? "ok" : outcome.code;
    };
    const first = await Promise.all(Array.from({ length: 16 }, create(1)));
    expect(first.filter((outcome) => outcome === "ok").length).toBeGreaterThanOrEqual(2);
    const second = await Promise.all(Array.from({ length: 16 }, create(2)));
    expect(second).toEqual(Array(16).fill(exceeded));
  });
});

describe("a workspace that has reached its quota of stored bytes", () => {
  const contract = openContract(
    allProtocols,
    { quotas: { keys: 100, identities: 100, bytes: 50_000 } },
    { alwaysInTurn: true },
  );
  let sql: postgres.Sql;
  beforeAll(() => {
    sql = openSql(contract.app.databaseUrl, { max: 1, onnotice: () => {} });
  });
  afterAll(() => sql.end());

  const meta = { text: "x".repeat(9_000) };
  const perMinute = { name: "requests", limit: 60, duration: 60_000 };
  const override = { namespace: "email.send", identifier: "user_1", limit: 5, duration: 60_000 };

  /** Creates the large resources last: until then, the quota has space for all of them. */
  async function fill({ ok, home, clock }: Scene) {
    const expires = clock.now() + 3_600_000;
    const { apiId } = await ok("createApi", home.key, { name: "payments" });
    for (const name of ["editor", "reader"]) await ok("createRole", home.key, { name, permissions: ["a", "b"] });
    await ok("createPermission", home.key, { name: "A", slug: "unused" });
    await ok("setOverride", home.key, override);
    const limited = { roles: ["editor"], ratelimits: [perMinute], credits: { remaining: 10 } };
    const request = { permissions: ["a", "b"], externalId: "user_1", expires, meta, ...limited };
    const { keyId } = await ok("createKey", home.key, request);
    const { keyId: disabled } = await ok("createKey", home.key, { enabled: false });
    await ok("updateIdentity", home.key, { externalId: "user_1", meta });
    await ok("createIdentity", home.key, { externalId: "user_2", meta });
    return { keyId, disabled, expires, apiId };
  }

  contract.everyProtocol("cannot store more: the error names the quota and the remedies", async (scene) => {
    const { keyId, disabled, expires } = await fill(scene);
    for (const [operation, request] of [
      ["createKey", {}],
      ["rerollKey", { keyId }],
      ["createIdentity", { externalId: "user_3" }],
      ["updateIdentity", { externalId: "user_1", meta: { small: 1 } }],
      ["updateKey", { keyId, name: "other" }],
      ["updateKey", { keyId, meta: {} }],
      ["updateKey", { keyId, externalId: "user_2" }],
      ["updateKey", { keyId: disabled, enabled: true }],
      ["updateKey", { keyId, permissions: ["a", "b", "c"] }],
      ["updateKey", { keyId, permissions: ["b", "a"] }],
      ["updateKey", { keyId, expires: null }],
      ["updateKey", { keyId, expires: expires - 1 }],
      ["updateKey", { keyId, enabled: false, name: "other" }],
      ["updateKey", { keyId, ratelimits: [perMinute, { ...perMinute, name: "tokens" }] }],
      ["updateKey", { keyId, roles: ["editor", "reader"] }],
      ["updateIdentity", { externalId: "user_1", ratelimits: [perMinute] }],
      ["addPermissions", { keyId, permissions: ["c"] }],
      ["setPermissions", { keyId, permissions: ["a", "b", "c"] }],
      ["addRoles", { keyId, roles: ["reader"] }],
      ["setRoles", { keyId, roles: ["reader"] }],
      ["migrateKeys", { migrationId: "m", keys: [{ hash: newHash() }] }],
      ["createApi", { name: "another" }],
      ["createRole", { name: "another" }],
      ["setRolePermissions", { roleId: "editor", permissions: ["a", "b", "c"] }],
      ["createPermission", { name: "B", slug: "another" }],
      ["setOverride", { ...override, identifier: "user_2" }],
    ] as [OperationName, CallRequest][]) {
      const { detail } = await scene.refused(exceeded, operation, scene.home.key, request);
      expect(detail, JSON.stringify(request)).toBe(
        "This workspace has reached its quota of 50000 stored bytes, including its audit events. Delete data that is no longer needed, wait until old audit events are removed, or ask the operator for a larger quota.",
      );
    }
  });

  contract.everyProtocol("can still make every change that revokes or deletes", async (scene) => {
    const { keyId, disabled, apiId } = await fill(scene);
    const { ok, home, clock } = scene;
    await ok("removePermissions", home.key, { keyId, permissions: ["a"] });
    await ok("setPermissions", home.key, { keyId, permissions: ["b"] });
    await ok("removeRoles", home.key, { keyId, roles: ["editor"] });
    await ok("setRoles", home.key, { keyId, roles: [] });
    await ok("setRolePermissions", home.key, { roleId: "editor", permissions: ["a"] });
    await ok("deleteRole", home.key, { role: "editor" });
    await ok("deletePermission", home.key, { permission: "unused" });
    await ok("deleteOverride", home.key, { namespace: override.namespace, identifier: override.identifier });
    await ok("deleteApi", home.key, { apiId });
    await ok("verifyKey", home.key, { key: home.key });
    for (const change of [
      { permissions: ["b"] },
      { permissions: ["b"] },
      { permissions: [] },
      { expires: clock.now() + 600_000 },
      { meta: null, name: null, externalId: null },
      { enabled: false },
      { enabled: false },
    ]) {
      await ok("updateKey", home.key, { keyId, ...change });
    }
    await ok("updateIdentity", home.key, { externalId: "user_1", meta: {} });
    await ok("deleteIdentity", home.key, { externalId: "user_2" });
    await ok("deleteKey", home.key, { keyId: disabled });
    await ok("deleteKey", home.key, { keyId });
    const { workspaceId } = home;
    await ok("disableWorkspace", operatorKey, { workspaceId, reason: "QUOTA_EXCEEDED" });
    await ok("enableWorkspace", operatorKey, { workspaceId });
  });

  /** How many responses to requests that change nothing are stored, each for another Idempotency-Key, until the quota is reached. */
  async function storedResponses(scene: Scene, operation: OperationName, request: CallRequest): Promise<number> {
    for (let stored = 0; stored < 100; stored++) {
      const outcome = await scene.call(operation, scene.home.key, request, newKey());
      if (outcome.ok) continue;
      expect(outcome.code).toBe(exceeded);
      return stored;
    }
    return Number.POSITIVE_INFINITY;
  }

  contract.everyProtocol(
    "cannot store responses for idempotency keys, until the earlier ones expire: imports of existing keys",
    async (scene) => {
      const { ok, home } = scene;
      const other = await scene.newWorkspace();
      const request = { migrationId: "m", keys: Array.from({ length: 40 }, () => ({ hash: newHash() })) };
      await ok("migrateKeys", other.key, request);
      expect(await storedResponses(scene, "migrateKeys", request)).toBeLessThan(25);
      // Without an Idempotency-Key, nothing is stored.
      expect(await ok("migrateKeys", home.key, request)).toMatchObject({ migrated: [] });
      await contract.app.advance(25 * 3_600_000);
      // Each call removes a few expired ones, those of other workspaces included.
      const isStored = async () => (await scene.call("migrateKeys", home.key, request, newKey())).ok;
      await expect.poll(isStored, { timeout: 10_000 }).toBe(true);
    },
  );

  contract.everyProtocol(
    "cannot store responses for idempotency keys: credits that stay as they are, except for none, which revokes",
    async (scene) => {
      const { ok, home } = scene;
      const { keyId } = await ok("createKey", home.key, { credits: { remaining: 10 }, meta });
      await ok("createKey", home.key, { meta });
      const set = (value: number) => ({ keyId, operation: "set", value });
      expect(await storedResponses(scene, "updateCredits", set(10))).toBeLessThan(100);
      const count = async () => (await sql`select from idempotency_records`).length;
      const before = await count();
      for (let times = 0; times < 3; times++) {
        expect(await ok("updateCredits", home.key, set(0), newKey())).toEqual({ remaining: 0 });
      }
      expect(await count()).toBe(before);
    },
  );

  test("has a usage counter that equals the stored bytes, after all of these changes", async () => {
    expect(await findPartialChanges(sql)).toEqual([]);
  });
});
