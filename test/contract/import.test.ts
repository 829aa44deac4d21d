import { createHash, randomUUID } from "node:crypto";
import { describe, expect, test } from "vitest";
import { openSql } from "../../commands/open-sql.js";
import { mintSecret } from "../../src/keys/secret.js";
import type { CallRequest } from "../support/clients/protocol-client.js";
import { allProtocols, openContract } from "./cases.js";
import { day } from "./key-settings.js";
import { newKey } from "./retries.js";
import { openScene, type Scene } from "./scene.js";

const contract = openContract();
const { everyProtocol } = contract;
const invalid = "application/invalid_input";

/** A secret of another service. */
const foreignSecret = () => `uk_live.${randomUUID()}`;
const hashOf = (secret: string) => createHash("sha256").update(secret).digest("base64");

/** Imports keys; the request may contain secrets in place of hashes. */
function importKeys({ ok, home }: Scene, keys: CallRequest[], request: CallRequest = {}) {
  const hashed = keys.map(({ secret, ...key }) => ({ hash: hashOf(String(secret)), ...key }));
  return ok("migrateKeys", home.key, { migrationId: "from elsewhere", keys: hashed, ...request });
}

const verify = ({ ok, home }: Scene, key: string, request: CallRequest = {}) =>
  ok("verifyKey", home.key, { key, ...request });

describe("an imported key", () => {
  everyProtocol("is verified by the secret that its holder has, whatever its form", async (scene) => {
    const one = randomUUID();
    const secrets = [
      `uk_live.${one}`,
      one.slice(0, 8),
      `with spaces and ü 🗝️ ${one}`,
      one.padEnd(512, "x"),
      mintSecret("old").plaintext,
    ];
    for (const secret of secrets) expect(await verify(scene, secret)).toMatchObject({ code: "NOT_FOUND" });
    const { migrated, failed } = await importKeys(
      scene,
      secrets.map((secret) => ({ secret })),
    );
    expect(failed).toEqual([]);
    expect(migrated).toEqual(
      secrets.map((secret) => ({ hash: hashOf(secret), keyId: expect.stringMatching(/^key_/) })),
    );
    for (const [index, secret] of secrets.entries()) {
      const keyId = migrated[index]?.keyId;
      expect(await verify(scene, secret)).toMatchObject({ code: "VALID", keyId });
      expect(await scene.ok("whoami", scene.home.key, { key: secret })).toMatchObject({ keyId, start: "" });
      expect(await verify(scene, `${secret.slice(0, -1)}!`)).toMatchObject({ code: "NOT_FOUND" });
    }
  });

  everyProtocol("has all its settings", async (scene) => {
    const { ok, home, clock } = scene;
    const { apiId } = await ok("createApi", home.key, { name: "imported" });
    await ok("createRole", home.key, { name: "editor", permissions: ["documents.edit"] });
    const { id: roleId } = await ok("getRole", home.key, { role: "editor" });
    const expires = clock.now() + day;
    const secret = foreignSecret();
    const settings = { name: "first", meta: { plan: "pro", list: [1, null] }, permissions: ["a", "b:c"], expires };
    const limits = [{ name: "requests", limit: 100, duration: 60_000, autoApply: true }];
    const { migrated } = await importKeys(
      scene,
      [
        { secret, ...settings, roles: [roleId], externalId: "user_1", enabled: false, ratelimits: limits },
        { secret: foreignSecret(), roles: ["editor"], externalId: "user_1" },
        { secret: foreignSecret() },
      ],
      { apiId },
    );
    const [first, second, third] = await Promise.all(
      migrated.map(({ keyId }) => scene.protocol.call("getKey", home.key, { keyId })),
    );
    expect(first).toMatchObject({
      data: {
        ...settings,
        apiId,
        scopes: [],
        roles: ["editor"],
        enabled: false,
        identity: { externalId: "user_1" },
        ratelimits: limits,
      },
    });
    expect(second).toMatchObject({ data: { roles: ["editor"], identity: { externalId: "user_1" }, enabled: true } });
    expect(third).toMatchObject({ data: { apiId, permissions: [], roles: [] } });
    expect(third).not.toHaveProperty("data.identity");
    expect(await ok("listIdentities", home.key)).toMatchObject([{ externalId: "user_1", meta: {} }]);
    expect(await verify(scene, secret)).toMatchObject({ code: "DISABLED" });
  });

  everyProtocol("belongs to an existing identity if there is one", async (scene) => {
    const { ok, home } = scene;
    const { identityId } = await ok("createIdentity", home.key, { externalId: "user_1", meta: { plan: "pro" } });
    const { migrated } = await importKeys(scene, [{ secret: foreignSecret(), externalId: "user_1" }]);
    const key = await ok("getKey", home.key, { keyId: migrated[0]?.keyId });
    expect(key.identity).toMatchObject({ identityId, meta: { plan: "pro" } });
  });

  everyProtocol("has no scopes and cannot be given any: it never authenticates a call", async (scene) => {
    const { ok, refused, home } = scene;
    const secret = "uk_live_0123456789";
    const unique = `${secret}${home.keyId}`;
    const { migrated } = await importKeys(scene, [{ secret: unique }]);
    const keyId = migrated[0]?.keyId;
    await refused("authentication/malformed", "listKeys", unique);
    expect(await verify(scene, unique)).toMatchObject({ code: "VALID" });
    await refused("authentication/malformed", "listKeys", unique);
    const { fields } = await refused(invalid, "updateKey", home.key, { keyId, scopes: ["keys.read"] });
    expect(fields).toMatchObject([{ location: "scopes", message: expect.stringContaining("reroll it first") }]);
    await ok("updateKey", home.key, { keyId, scopes: [], name: "renamed" });
  });

  everyProtocol("gets a secret of this service when it is rerolled", async (scene) => {
    const { ok, home } = scene;
    const secret = foreignSecret();
    const { migrated } = await importKeys(scene, [{ secret, name: "imported", permissions: ["a"] }]);
    const successor = await ok("rerollKey", home.key, { keyId: migrated[0]?.keyId });
    expect(successor.key).toMatch(/^lk_[0-9A-Za-z]{39}$/);
    expect(await verify(scene, successor.key, { permissions: "a" })).toMatchObject({ code: "VALID", name: "imported" });
    expect(await verify(scene, secret)).toMatchObject({ code: "EXPIRED" });
    await ok("updateKey", home.key, { keyId: successor.keyId, scopes: ["keys.read"] });
  });

  everyProtocol("is recorded with the label of its import", async (scene) => {
    const { ok, home } = scene;
    const request = { migrationId: "2027-01 from acme" };
    const { migrated } = await importKeys(scene, [{ secret: foreignSecret(), externalId: "user_1" }], request);
    const keyId = migrated[0]?.keyId;
    const created = { type: "key.create", actor: home.keyId, after: { migrationId: request.migrationId, scopes: [] } };
    expect(await ok("listAuditEvents", home.key, { resourceId: keyId })).toMatchObject([created]);
    expect(await ok("listAuditEvents", home.key, { type: "identity.create" })).toHaveLength(1);
  });

  everyProtocol("is looked up only in a workspace with imports", async (scene) => {
    const other = await scene.newWorkspace();
    const secret = foreignSecret();
    await importKeys(scene, [{ secret }]);
    expect(await scene.ok("verifyKey", other.key, { key: secret })).toMatchObject({ code: "NOT_FOUND" });
    await scene.refused("data/key_not_found", "whoami", other.key, { key: secret });
  });
});

describe("an import", () => {
  everyProtocol(
    "returns hashes that exist already among `failed`, in any workspace, and imports the others",
    async (scene) => {
      const { ok, home } = scene;
      const [mine, theirs, fresh] = [foreignSecret(), foreignSecret(), foreignSecret()];
      const { migrated } = await importKeys(scene, [{ secret: mine, name: "first" }]);
      const other = await scene.newWorkspace();
      await ok("migrateKeys", other.key, { migrationId: "m", keys: [{ hash: hashOf(theirs) }] });
      const second = await importKeys(
        scene,
        [mine, fresh, theirs].map((secret) => ({ secret, name: "second" })),
      );
      expect(second).toEqual({
        migrated: [{ hash: hashOf(fresh), keyId: expect.any(String) }],
        failed: [hashOf(mine), hashOf(theirs)],
      });
      expect(await ok("getKey", home.key, { keyId: migrated[0]?.keyId })).toMatchObject({ name: "first" });
      expect(await verify(scene, theirs)).toMatchObject({ code: "NOT_FOUND" });
      expect(await importKeys(scene, [{ secret: mine }])).toEqual({ migrated: [], failed: [hashOf(mine)] });
    },
  );

  everyProtocol("of unknown roles or an unknown API imports nothing", async (scene) => {
    const { ok, refused, home } = scene;
    const keys = [
      { hash: hashOf(foreignSecret()), externalId: "user_1" },
      { hash: hashOf(foreignSecret()), roles: ["nobody"] },
    ];
    const { detail } = await refused("data/role_not_found", "migrateKeys", home.key, { migrationId: "m", keys });
    expect(detail).toContain("nobody");
    const apiId = "api_00000000000000000000000000";
    const request = { migrationId: "m", apiId, keys: keys.slice(0, 1) };
    await refused("data/api_not_found", "migrateKeys", home.key, request);
    // Also if there is nothing to import, with an Idempotency-Key and without.
    const existing = { ...request, keys: [{ hash: hashOf(foreignSecret()) }] };
    await ok("migrateKeys", (await scene.newWorkspace()).key, { migrationId: "m", keys: existing.keys });
    await refused("data/api_not_found", "migrateKeys", home.key, existing, newKey());
    await refused("data/api_not_found", "migrateKeys", home.key, existing);
    expect(await ok("listKeys", home.key)).toHaveLength(1);
    expect(await ok("listIdentities", home.key)).toEqual([]);
  });

  everyProtocol("with an invalid or repeated hash is refused, and the field named", async (scene) => {
    const { refused, home } = scene;
    const hash = hashOf("a");
    const hex = Buffer.from(hash, "base64").toString("hex");
    for (const [keys, location] of [
      [[{ hash: "" }], "keys[0].hash"],
      [[{ hash }, { hash: hex }], "keys[1].hash"],
      [[{ hash: `${hash.slice(0, 42)}B=` }], "keys[0].hash"],
      [[{ hash }, { hash }], "keys"],
      [[{ hash }, { hash: hash.replace("=", "") }], "keys"],
      [[], "keys"],
      [Array.from({ length: 101 }, (_, index) => ({ hash: hashOf(`${index}`) })), "keys"],
      [[{ hash, roles: ["a", "a"] }], "keys[0].roles"],
      [[{ hash, expires: 1 }], "keys[0].expires"],
    ] as [CallRequest[], string][]) {
      const { fields } = await refused(invalid, "migrateKeys", home.key, { migrationId: "m", keys });
      expect(new Set(fields?.map((field) => field.location))).toEqual(new Set([location]));
    }
  });

  everyProtocol("of 100 keys with 100 owners is one change", async (scene) => {
    const { ok, home } = scene;
    const secrets = Array.from({ length: 100 }, foreignSecret);
    const keys = secrets.map((secret, index) => ({ secret, externalId: `user_${index}`, name: `key ${index}` }));
    const { migrated } = await importKeys(scene, keys);
    expect(new Set(migrated.map(({ keyId }) => keyId)).size).toBe(100);
    const events = await ok("listAuditEvents", home.key, { type: "key.create" });
    expect(new Set(events.slice(0, 99).map(({ requestId }) => requestId)).size).toBe(1);
    expect(await verify(scene, secrets[99] as string)).toMatchObject({
      code: "VALID",
      identity: { externalId: "user_99" },
    });
  });

  test("of the same hashes at the same time imports each of them once", async () => {
    const scenes = await Promise.all(allProtocols.map((name) => openScene(contract.protocols[name], contract.clock)));
    const hashes = Array.from({ length: 20 }, () => hashOf(foreignSecret()));
    const results = await Promise.all(
      scenes.map((scene, index) => {
        const mine = index % 2 === 0 ? hashes : hashes.toReversed();
        const keys = mine.map((hash) => ({ hash, externalId: `user_${hashes.indexOf(hash)}` }));
        return scene.ok("migrateKeys", scene.home.key, { migrationId: "race", keys });
      }),
    );
    expect(results.flatMap(({ migrated }) => migrated.map(({ hash }) => hash)).sort()).toEqual([...hashes].sort());
    for (const { migrated, failed } of results) expect(migrated.length + failed.length).toBe(hashes.length);
  });

  test("sets the credits of keys", async () => {
    const scene = await openScene(contract.protocols.grpc, contract.clock);
    const refill = { interval: "monthly", amount: 50, refillDay: 31 };
    const { migrated } = await importKeys(scene, [
      { secret: foreignSecret(), credits: { remaining: 7, refill } },
      { secret: foreignSecret(), credits: { remaining: 0 } },
      { secret: foreignSecret(), credits: {} },
    ]);
    const sql = openSql(contract.app.databaseUrl, { max: 1 });
    const ids = migrated.map(({ keyId }) => keyId);
    const rows = await sql`
      select has_credits, remaining::int, refill_interval, refill_amount::int, refill_day
      from keys left join key_credits using (key_id) where key_id in ${sql(ids)} order by key_id`.finally(() =>
      sql.end(),
    );
    const noRefill = { refill_interval: null, refill_amount: null, refill_day: null };
    expect(rows).toEqual([
      { has_credits: true, remaining: 7, refill_interval: "monthly", refill_amount: 50, refill_day: 31 },
      { has_credits: true, remaining: 0, ...noRefill },
      { has_credits: false, remaining: null, ...noRefill },
    ]);
  });
});

describe("an import into a workspace that reaches a quota", () => {
  const small = openContract(["grpc", "http"], { quotas: { keys: 5, identities: 2, bytes: 1e9 } });

  small.everyProtocol("imports all keys or none", async (scene) => {
    const { ok, refused, home } = scene;
    const keys = (count: number, from = 0) =>
      Array.from({ length: count }, (_, index) => ({ hash: hashOf(`${home.keyId} ${from + index}`) }));
    const exceeded = "limits/quota_exceeded";
    const five = await refused(exceeded, "migrateKeys", home.key, { migrationId: "m", keys: keys(5) });
    expect(five.detail).toContain("5 keys");
    expect(await ok("listKeys", home.key)).toHaveLength(1);
    const owned = keys(3).map((key, index) => ({ ...key, externalId: `user_${index}` }));
    const three = await refused(exceeded, "migrateKeys", home.key, { migrationId: "m", keys: owned });
    expect(three.detail).toContain("2 identities");
    expect(await ok("listIdentities", home.key)).toEqual([]);
    await ok("createIdentity", home.key, { externalId: "user_0" });
    await ok("migrateKeys", home.key, { migrationId: "m", keys: owned.slice(0, 2) });
    await ok("migrateKeys", home.key, { migrationId: "m", keys: owned.slice(0, 2) }); // both exist already
    await ok("migrateKeys", home.key, { migrationId: "m", keys: keys(2, 10) });
    await refused(exceeded, "migrateKeys", home.key, { migrationId: "m", keys: keys(1, 20) });
    expect(await ok("listKeys", home.key)).toHaveLength(5);
  });
});
