import { createHash, randomUUID } from "node:crypto";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { operatorKey } from "../../support/harness.js";
import { openReplicas, type Replicas } from "../../support/replicas.js";
import type { ResponseData } from "../../support/responses.js";

const rounds = 2;

let replicas: Replicas;
let home: ResponseData["createWorkspace"];

beforeAll(async () => {
  replicas = await openReplicas(2);
  home = await replicas.change("createWorkspace", operatorKey, { name: "home" });
});
afterAll(() => replicas.close());

const change: Replicas["change"] = (...call) => replicas.change(...call);
const all = <T>(value: T) => replicas.protocols.map(() => value);
const codes = async (key: string, permissions?: string) =>
  (await replicas.callAll("verifyKey", home.key, { key, ...(permissions && { permissions }) })).map(({ code }) => code);

/** With a new key each time, which every replica has cached. */
async function everyRound(settings: object, body: (key: string, keyId: string) => Promise<void>): Promise<void> {
  for (let round = 0; round < rounds; round++) {
    const { key, keyId } = await change("createKey", home.key, { scopes: ["keys.read"], ...settings });
    await replicas.expectCached(key);
    await body(key, keyId);
  }
}

describe("a change that one replica has acknowledged applies on every other replica at once:", () => {
  it("an API that is deleted, with keys that every replica has cached", async () => {
    for (let round = 0; round < rounds; round++) {
      const { apiId } = await change("createApi", home.key, { name: "payments" });
      const made = [];
      for (let index = 0; index < 3; index++) {
        made.push(await change("createKey", home.key, { apiId, scopes: ["keys.read"] }));
      }
      for (const { key } of made) await replicas.expectCached(key);
      await change("deleteApi", home.key, { apiId });
      for (const { key } of made) {
        expect(await replicas.outcomes(key)).toEqual(all("authentication/key_not_found"));
        expect(await codes(key)).toEqual(all("NOT_FOUND"));
      }
    }
  });

  it("the permissions of a role, and a role that is deleted", async () => {
    for (let round = 0; round < rounds; round++) {
      const name = `role ${round}`;
      const { roleId } = await change("createRole", home.key, { name, permissions: ["a"] });
      await everyRound({ roles: [name] }, async (key) => {
        await change("setRolePermissions", home.key, { roleId, permissions: ["a"] });
        expect(await codes(key, "a")).toEqual(all("VALID"));
        await change("setRolePermissions", home.key, { roleId, permissions: ["b"] });
        expect(await codes(key, "a")).toEqual(all("INSUFFICIENT_PERMISSIONS"));
        expect(await codes(key, "b")).toEqual(all("VALID"));
      });
      const { key } = await change("createKey", home.key, { roles: [name] });
      expect(await codes(key, "b")).toEqual(all("VALID"));
      await change("deleteRole", home.key, { role: roleId });
      expect(await codes(key, "b")).toEqual(all("INSUFFICIENT_PERMISSIONS"));
    }
  });

  it("the roles of a key", async () => {
    await change("createRole", home.key, { name: "of keys", permissions: ["a"] });
    await everyRound({}, async (key, keyId) => {
      await change("addRoles", home.key, { keyId, roles: ["of keys"] });
      expect(await codes(key, "a")).toEqual(all("VALID"));
      await change("removeRoles", home.key, { keyId, roles: ["of keys"] });
      expect(await codes(key, "a")).toEqual(all("INSUFFICIENT_PERMISSIONS"));
    });
  });

  it("the permissions of a key", () =>
    everyRound({}, async (key, keyId) => {
      await change("addPermissions", home.key, { keyId, permissions: ["a"] });
      expect(await codes(key, "a")).toEqual(all("VALID"));
      await change("removePermissions", home.key, { keyId, permissions: ["a"] });
      expect(await codes(key, "a")).toEqual(all("INSUFFICIENT_PERMISSIONS"));
    }));

  it("the first import of a workspace: before, malformed secrets are refused without a lookup", async () => {
    for (let round = 0; round < rounds; round++) {
      const { key: caller } = await change("createWorkspace", operatorKey, { name: "imports" });
      const secret = `foreign ${randomUUID()}`;
      const verify = async () => (await replicas.callAll("verifyKey", caller, { key: secret })).map(({ code }) => code);
      expect(await verify()).toEqual(all("NOT_FOUND"));
      const hash = createHash("sha256").update(secret).digest("base64");
      await change("migrateKeys", caller, { migrationId: "m", keys: [{ hash }] });
      expect(await verify()).toEqual(all("VALID"));
    }
  });
});
