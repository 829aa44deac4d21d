import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { createDatabase, operatorKey } from "../../support/harness.js";
import { readMetric } from "../../support/metrics.js";
import { openReplicas, type Replicas } from "../../support/replicas.js";
import type { ResponseData } from "../../support/responses.js";

// The databases of tests have a short lease time. An installation has the default.
describe.each([
  { lease: "short", rounds: 3 },
  { lease: "default", rounds: 1 },
])(
  "a change that one replica has acknowledged applies on every other replica at once, with the $lease lease:",
  ({ lease, rounds }) => {
    let database: Awaited<ReturnType<typeof createDatabase>> | undefined;
    let replicas: Replicas;
    let home: ResponseData["createWorkspace"];

    beforeAll(async () => {
      if (lease === "default") database = await createDatabase();
      replicas = await openReplicas(3, database?.url);
      home = await replicas.change("createWorkspace", operatorKey, { name: "home" });
    });
    afterAll(async () => {
      await replicas.close();
      await database?.drop();
    });

    const change: Replicas["change"] = (...call) => replicas.change(...call);
    const outcomes = (key: string) => replicas.outcomes(key);
    const all = <T>(value: T) => replicas.protocols.map(() => value);
    const verifications = (key: string, permissions?: string) =>
      replicas.callAll("verifyKey", home.key, { key, ...(permissions && { permissions }) });

    /** With a new key each time, which every replica has cached. */
    async function everyRound(body: (key: string, keyId: string) => Promise<void>): Promise<void> {
      for (let round = 0; round < rounds; round++) {
        const externalId = `owner ${Math.random()}`;
        const settings = {
          scopes: ["keys.read"],
          permissions: ["documents.read"],
          name: "old",
          meta: { plan: "old" },
          externalId,
        };
        const { key, keyId } = await change("createKey", home.key, settings);
        await replicas.expectCached(key);
        await body(key, keyId);
      }
    }

    it("a workspace that is disabled, and enabled again", async () => {
      const { workspaceId, key } = await change("createWorkspace", operatorKey, { name: "test" });
      for (let round = 0; round < rounds; round++) {
        await replicas.expectCached(key);
        await change("disableWorkspace", operatorKey, { workspaceId, reason: "UNPAID_BILLING" });
        expect(await outcomes(key)).toEqual(all("authorization/workspace_disabled"));
        await change("enableWorkspace", operatorKey, { workspaceId });
        expect(await outcomes(key)).toEqual(all("ok"));
      }
    });

    it("a workspace that is deleted, and deleted again by a client that does not know the outcome", async () => {
      for (let round = 0; round < rounds; round++) {
        const { workspaceId, key } = await change("createWorkspace", operatorKey, { name: "test" });
        await replicas.expectCached(key);
        await change("disableWorkspace", operatorKey, { workspaceId, reason: "ACCOUNT_CLOSURE" });
        await change("deleteWorkspace", operatorKey, { workspaceId });
        expect(await outcomes(key)).toEqual(all("authentication/key_not_found"));
        await change("deleteWorkspace", operatorKey, { workspaceId });
        expect(await outcomes(key)).toEqual(all("authentication/key_not_found"));
      }
    });

    it("a key that is disabled, and enabled again", () =>
      everyRound(async (key, keyId) => {
        await change("updateKey", home.key, { keyId, enabled: false });
        expect(await outcomes(key)).toEqual(all("authorization/key_disabled"));
        const disabled = { valid: false, code: "DISABLED", keyId, enabled: false };
        expect(await verifications(key)).toEqual(all(expect.objectContaining(disabled)));
        await change("updateKey", home.key, { keyId, enabled: true });
        expect(await outcomes(key)).toEqual(all("ok"));
      }));

    it("a key's scopes, permissions, name and meta", () =>
      everyRound(async (key, keyId) => {
        await change("updateKey", home.key, {
          keyId,
          scopes: ["keys.verify"],
          permissions: ["documents.write"],
          name: "new",
          meta: { plan: "new" },
        });
        expect(await outcomes(key)).toEqual(all("authorization/insufficient_permissions"));
        const expected = { code: "VALID", permissions: ["documents.write"], name: "new", meta: { plan: "new" } };
        expect(await verifications(key, "documents.write")).toEqual(all(expect.objectContaining(expected)));
        const codes = (await verifications(key, "documents.read")).map(({ code }) => code);
        expect(codes).toEqual(all("INSUFFICIENT_PERMISSIONS"));
      }));

    it("a key's expiry that is brought forward", () =>
      everyRound(async (key, keyId) => {
        const expires = Date.now() + 60_000;
        await change("updateKey", home.key, { keyId, expires });
        expect((await verifications(key)).map(({ expires }) => expires)).toEqual(all(expires));
      }));

    it("a key that is deleted", () =>
      everyRound(async (key, keyId) => {
        await change("deleteKey", home.key, { keyId });
        expect(await outcomes(key)).toEqual(all("authentication/key_not_found"));
        expect((await verifications(key)).map(({ code }) => code)).toEqual(all("NOT_FOUND"));
      }));

    it("a key that is rerolled without a grace period", () =>
      everyRound(async (key, keyId) => {
        const { key: successor } = await change("rerollKey", home.key, { keyId, expiration: 0 });
        expect(await outcomes(key)).toEqual(all("authentication/key_expired"));
        expect(await outcomes(successor)).toEqual(all("ok"));
      }));

    it("a key's identity that changes, and that is deleted", () =>
      everyRound(async (key) => {
        const [before] = await verifications(key);
        const identityId = before?.identity?.identityId;
        await change("updateIdentity", home.key, { identityId, meta: { plan: "new" } });
        const identity = expect.objectContaining({ identityId, meta: { plan: "new" } });
        expect(await verifications(key)).toEqual(all(expect.objectContaining({ identity })));
        await change("deleteIdentity", home.key, { identityId });
        const after = await verifications(key);
        expect(after.map(({ code, identity }) => ({ code, identity }))).toEqual(
          all({ code: "VALID", identity: undefined }),
        );
      }));

    it("no spot check has found a revoked key accepted", async () => {
      for (const app of replicas.apps) expect(await readMetric(app, "stale_accept_total")).toBe(0);
    });
  },
);
