import type postgres from "postgres";
import { describe, expect, test } from "vitest";
import { openSql } from "../../commands/open-sql.js";
import type { Outcome } from "../support/clients/outcome.js";
import type { CallRequest } from "../support/clients/protocol-client.js";
import type { OperationName } from "../support/operations.js";
import type { ResponseData } from "../support/responses.js";
import { allProtocols, openContract } from "./cases.js";
import { openScene } from "./scene.js";

const contract = openContract();

/** Makes `count` concurrent calls, over all protocols in turn. */
function atOnce(
  count: number,
  operation: OperationName,
  key: string,
  requestOf: (index: number) => CallRequest,
): Promise<Outcome[]> {
  const protocols = Array.from(
    { length: count },
    (_, index) => contract.protocols[allProtocols[index % allProtocols.length] ?? "http"],
  );
  return Promise.all(protocols.map((protocol, index) => protocol.call(operation, key, requestOf(index))));
}

function refusalsOf(outcomes: readonly Outcome[]): string[] {
  return outcomes.flatMap((outcome) => (outcome.ok ? [] : [outcome.code]));
}

describe("concurrent calls over all protocols", () => {
  for (const round of [1, 2, 3]) {
    test(`of 20 creates of one externalId exactly one succeeds, the others get identity_already_exists (${round})`, async () => {
      const { ok, home } = await openScene(contract.protocols.http, contract.clock);
      const requestOf = (index: number) => ({ externalId: "user_1", meta: { index } });
      const outcomes = await atOnce(20, "createIdentity", home.key, requestOf);
      expect(refusalsOf(outcomes)).toEqual(Array(19).fill("data/identity_already_exists"));
      const winner = outcomes.findIndex(({ ok }) => ok);
      const won = outcomes[winner];
      const { identityId } = (won?.ok ? won.data : {}) as ResponseData["createIdentity"];
      const identities = await ok("listIdentities", home.key);
      expect(identities).toEqual([
        expect.objectContaining({ identityId, externalId: "user_1", meta: { index: winner } }),
      ]);
      const events = await ok("listAuditEvents", home.key, { type: "identity.create" });
      expect(events.map(({ resourceId }) => resourceId)).toEqual([identityId]);
    });
  }

  test("20 keys created for one unknown externalId share one identity, and none is refused", async () => {
    const { ok, home } = await openScene(contract.protocols.http, contract.clock);
    const outcomes = await atOnce(20, "createKey", home.key, () => ({ externalId: "user_1" }));
    expect(refusalsOf(outcomes)).toEqual([]);
    const [identity, ...more] = await ok("listIdentities", home.key);
    expect(more).toEqual([]);
    const keys = await ok("listKeys", home.key, { externalId: "user_1" });
    expect(keys.map((key) => key.identity)).toEqual(Array(20).fill(identity));
  });

  test("of 20 deletions of one identity or one key exactly one finds it", async () => {
    const { ok, home } = await openScene(contract.protocols.http, contract.clock);
    const { keyId } = await ok("createKey", home.key, { externalId: "user_1" });
    const identities = await atOnce(20, "deleteIdentity", home.key, () => ({ externalId: "user_1" }));
    expect(refusalsOf(identities)).toEqual(Array(19).fill("data/identity_not_found"));
    const keys = await atOnce(20, "deleteKey", home.key, () => ({ keyId }));
    expect(refusalsOf(keys)).toEqual(Array(19).fill("data/key_not_found"));
  });

  test("an identity that is created and deleted repeatedly exists at most once", async () => {
    const { ok, home } = await openScene(contract.protocols.http, contract.clock);
    const request = { externalId: "user_1" };
    for (let round = 0; round < 2; round++) {
      const [created, deleted, keys] = await Promise.all([
        atOnce(12, "createIdentity", home.key, () => request),
        atOnce(12, "deleteIdentity", home.key, () => request),
        atOnce(8, "createKey", home.key, () => request),
      ]);
      for (const code of refusalsOf(created)) expect(code).toBe("data/identity_already_exists");
      for (const code of refusalsOf(deleted)) expect(code).toBe("data/identity_not_found");
      expect(refusalsOf(keys), "createKey creates the identity if there is none").toEqual([]);
      const identities = await ok("listIdentities", home.key);
      expect(identities.length).toBeLessThanOrEqual(1);
      const found = (await ok("listKeys", home.key)).flatMap(({ identity }) => identity ?? []);
      for (const identity of found) expect([identity]).toEqual(identities);
    }
  });

  test("10 rerolls of one key return 10 different keys, and the old secret is expired", async () => {
    const scene = await openScene(contract.protocols.http, contract.clock);
    const { keyId, key } = await scene.ok("createKey", scene.home.key, { scopes: ["keys.read"] });
    const outcomes = await atOnce(10, "rerollKey", scene.home.key, () => ({ keyId }));
    expect(refusalsOf(outcomes)).toEqual([]);
    expect(await scene.ok("listKeys", scene.home.key)).toHaveLength(12);
    await scene.refused("authentication/key_expired", "listKeys", key);
  });

  test("20 updates of different fields of one key are all applied", async () => {
    const { ok, home } = await openScene(contract.protocols.http, contract.clock);
    const { keyId } = await ok("createKey", home.key);
    const changes = [{ name: "second" }, { meta: { a: 1 } }, { enabled: false }, { permissions: ["a"] }];
    const outcomes = await atOnce(20, "updateKey", home.key, (index) => ({ keyId, ...changes[index % 4] }));
    expect(refusalsOf(outcomes)).toEqual([]);
    expect(await ok("getKey", home.key, { keyId })).toMatchObject(Object.assign({}, ...changes));
  });
});

describe("race: an identity deleted while a key is assigned to it by externalId", () => {
  for (const operation of ["createKey", "updateKey"] as const) {
    test(`is created again, as if it had been deleted just before: ${operation}`, async () => {
      const { ok, home } = await openScene(contract.protocols.http, contract.clock);
      const { identityId } = await ok("createIdentity", home.key, { externalId: "user_1" });
      const { keyId } = await ok("createKey", home.key);
      const request = { externalId: "user_1", ...(operation === "updateKey" && { keyId }) };
      const outcome = await whileChanging(
        (transaction) => transaction`delete from identities where identity_id = ${identityId}`,
        () => contract.protocols.grpc.call(operation, home.key, request),
      );
      expect(refusalsOf([outcome])).toEqual([]);
      const identity = await ok("getIdentity", home.key, { externalId: "user_1" });
      expect(identity.identityId).not.toBe(identityId);
      expect(await ok("listKeys", home.key, { externalId: "user_1" })).toMatchObject([{ identity }]);
    });
  }
});

describe("race: a key that is changed while another key changes it is authorized by its new state:", () => {
  const [disabling, strengthening] = ["enabled = false", "scopes = '{*}'"];
  for (const [what, operation, request, change] of [
    ["given more scopes, and enabled", "updateKey", { enabled: true }, `${disabling}, ${strengthening}`],
    ["given more scopes, and disabled", "updateKey", { enabled: false }, strengthening],
    ["given more scopes, and its scopes removed", "updateKey", { scopes: [] }, strengthening],
    ["given more scopes, and its expiry moved forward", "updateKey", { expires: 30_000 }, strengthening],
    ["given more scopes, and its expiry cleared", "updateKey", { expires: null }, strengthening],
    ["given more scopes, and rerolled", "rerollKey", {}, strengthening],
    ["given more scopes, and deleted", "deleteKey", {}, strengthening],
  ] as const) {
    test(what, async () => {
      const { ok, home } = await openScene(contract.protocols.http, contract.clock);
      const expires = contract.clock.now() + 60_000;
      const { keyId } = await ok("createKey", home.key, { scopes: ["keys.update"], expires });
      const weak = await ok("createKey", home.key, { scopes: ["keys.create", "keys.update", "keys.delete"] });
      const shorter = "expires" in request && request.expires && { expires: contract.clock.now() + request.expires };
      const outcome = await whileChanging(
        (transaction) => transaction.unsafe(`update keys set ${change} where key_id = $1`, [keyId]),
        () => contract.protocols.grpc.call(operation, weak.key, { keyId, ...request, ...shorter }),
      );
      expect(refusalsOf([outcome])).toEqual(["authorization/insufficient_permissions"]);
      const enabled = change === strengthening;
      expect(await ok("getKey", home.key, { keyId })).toMatchObject({ scopes: ["*"], expires, enabled });
      expect(await ok("listKeys", home.key)).toHaveLength(3);
    });
  }
});

describe("race: a key that is changed while it changes itself regains nothing:", () => {
  const lacking = "authorization/insufficient_permissions";
  for (const [what, request, change, left, refusal] of [
    ["disabled", { enabled: true }, "enabled = false", { enabled: false }, "authorization/key_disabled"],
    ["given an expiry", { expires: null }, "expires_at = '2099-01-01'", { expires: Date.UTC(2099, 0) }, lacking],
    ["deprived of a scope", { scopes: ["keys.*"] }, "scopes = '{keys.update}'", { scopes: ["keys.update"] }, lacking],
  ] as const) {
    test(what, async () => {
      const { ok, home } = await openScene(contract.protocols.http, contract.clock);
      const { keyId, key } = await ok("createKey", home.key, { scopes: ["keys.*"] });
      const outcome = await whileChanging(
        (transaction) => transaction.unsafe(`update keys set ${change} where key_id = $1`, [keyId]),
        () => contract.protocols.grpc.call("updateKey", key, { keyId, ...request }),
      );
      expect(refusalsOf([outcome])).toEqual([refusal]);
      expect(await ok("getKey", home.key, { keyId })).toMatchObject(left);
    });
  }

  test("rerolled by itself, twice: the second reroll creates no successor that never expires", async () => {
    const { ok, home } = await openScene(contract.protocols.http, contract.clock);
    const { keyId, key } = await ok("createKey", home.key, { scopes: ["keys.create"] });
    const end = "configured_expires_at = 'infinity', expires_at = now() + interval '1 hour'";
    const outcome = await whileChanging(
      (transaction) => transaction.unsafe(`update keys set ${end} where key_id = $1`, [keyId]),
      () => contract.protocols.grpc.call("rerollKey", key, { keyId, expiration: 60_000 }),
    );
    expect(refusalsOf([outcome])).toEqual(["authorization/insufficient_permissions"]);
    expect(await ok("listKeys", home.key)).toHaveLength(2);
  });
});

/** Makes the call while a transaction has uncommitted changes, and commits once the call waits for its lock. */
async function whileChanging(
  change: (transaction: postgres.TransactionSql) => Promise<unknown>,
  call: () => Promise<Outcome>,
): Promise<Outcome> {
  const sql = openSql(contract.app.databaseUrl, { max: 2 });
  try {
    const { outcome } = await sql.begin(async (transaction) => {
      await change(transaction);
      const outcome = call();
      await expect
        .poll(() => sql`select from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'`)
        .toHaveLength(1);
      return { outcome };
    });
    return await outcome;
  } finally {
    await sql.end();
  }
}
