import type postgres from "postgres";
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from "vitest";
import { openSql } from "../../commands/open-sql.js";
import { succeed } from "../support/calls.js";
import { openProtocols, type ProtocolClients } from "../support/clients/all.js";
import type { HeaderLines } from "../support/clients/headers.js";
import { post as postJson } from "../support/clients/http-requests.js";
import type { CallRequest } from "../support/clients/protocol-client.js";
import { openTestApp, operatorKey, type TestApp } from "../support/harness.js";
import { readMetric } from "../support/metrics.js";
import type { OperationName } from "../support/operations.js";
import { newHash } from "./callers.js";
import { createVictim, revocations, type Victim } from "./revocations.js";

/** Two replicas on one database: while one has no free connection, the other can still revoke. */
let busy: TestApp;
let other: TestApp;
let protocols: ProtocolClients;
let sql: postgres.Sql;

beforeAll(async () => {
  busy = await openTestApp({ metricsPort: 0 });
  other = await openTestApp({ databaseUrl: busy.databaseUrl });
  protocols = openProtocols(busy);
  sql = openSql(busy.databaseUrl, { max: 3, onnotice: () => {} });
});
afterAll(async () => {
  protocols.close();
  await sql.end({ timeout: 1 });
  await other.close();
  await busy.close();
});

type Call = readonly [OperationName, CallRequest, HeaderLines?];

/** The resources that the victim's calls change. */
interface Things {
  readonly keyId: string;
  /** A key with credits. */
  readonly spendingId: string;
  readonly identityId: string;
  readonly apiId: string;
}

async function createThings({ firstKey }: Victim): Promise<Things> {
  const role = { name: "editor", permissions: ["documents.read"] };
  const [{ apiId }] = await Promise.all([
    succeed<Things>(other.httpUrl, "apis.createApi", firstKey, { name: "payments" }),
    succeed(other.httpUrl, "permissions.createRole", firstKey, role),
    succeed(other.httpUrl, "permissions.createPermission", firstKey, { name: "unused", slug: "unused" }),
    succeed(other.httpUrl, "ratelimit.setOverride", firstKey, { ...override, limit: 5, duration: 60_000 }),
  ]);
  const { keyId } = await succeed<Things>(other.httpUrl, "keys.createKey", firstKey, { externalId: "user" });
  const spending = await succeed<Things>(other.httpUrl, "keys.createKey", firstKey, { credits: { remaining: 5 } });
  const { identity } = await succeed<{ identity: Things }>(other.httpUrl, "keys.getKey", firstKey, { keyId });
  return { keyId, spendingId: spending.keyId, identityId: identity.identityId, apiId };
}

const override = { namespace: "email.send", identifier: "user" };

/** Every change that a key can make. */
const changesOf = ({ keyId, identityId, apiId }: Things): Call[] => [
  ["createKey", { scopes: ["*"] }],
  ["createKey", { scopes: ["*"], externalId: "user" }],
  ["updateKey", { keyId, scopes: ["*"] }],
  ["updateKey", { keyId, name: "another" }],
  ["deleteKey", { keyId }],
  ["rerollKey", { keyId }],
  ["createIdentity", { externalId: "another" }],
  ["updateIdentity", { identityId, meta: { plan: "pro" } }],
  ["deleteIdentity", { identityId }],
  ["updateKey", { keyId, ratelimits: [{ name: "requests", limit: 5, duration: 1000 }], credits: { remaining: 5 } }],
  ["updateCredits", { keyId, operation: "set", value: 5 }],
  ["addPermissions", { keyId, permissions: ["documents.write"] }],
  ["setPermissions", { keyId, permissions: ["documents.write"] }],
  ["addRoles", { keyId, roles: ["editor"] }],
  ["setRoles", { keyId, roles: ["editor"] }],
  ["migrateKeys", { migrationId: "m", keys: [{ hash: newHash() }] }],
  ["createApi", { name: "another" }],
  ["deleteApi", { apiId }],
  ["createRole", { name: "another" }],
  ["setRolePermissions", { roleId: "editor", permissions: ["documents.write"] }],
  ["deleteRole", { role: "editor" }],
  ["createPermission", { name: "another", slug: "another" }],
  ["deletePermission", { permission: "unused" }],
  ["setOverride", { ...override, limit: 9, duration: 60_000 }],
  ["deleteOverride", override],
  // An update without a change leaves no event, and a delete that finds nothing changes nothing. Their callers are
  // refused too.
  ["updateIdentity", { identityId, meta: {} }],
  ["deleteKey", { keyId: "key_01jd9wzr3xfg2tq5d0v8m1c7ha" }],
];

/** Changes that a key makes to itself. */
const changesOfItself = ({ keyId }: Victim): Call[] => [
  ["updateKey", { keyId, enabled: true, expires: null }],
  ["updateKey", { keyId, scopes: ["*"] }],
  ["updateKey", { keyId, name: "another" }],
  ["rerollKey", { keyId }],
];

/** Makes the calls as the victim, over gRPC and HTTP in turn. Returns their outcome codes. */
function makeCalls({ key }: Pick<Victim, "key">, calls: readonly Call[]): Promise<string[]> {
  return Promise.all(
    calls.map(async ([operation, request, headers], index) => {
      const protocol = index % 2 === 0 ? protocols.grpc : protocols.http;
      const outcome = await protocol.call(operation, key, request, headers);
      return outcome.ok ? "ok" : outcome.code;
    }),
  );
}

/** Locks rows in PostgreSQL. Returns the function that releases them. */
async function lockRows(lock: (sql: postgres.ISql) => Promise<unknown>): Promise<() => Promise<void>> {
  const own = await sql.reserve();
  await own`begin`;
  await lock(own);
  let locked = true;
  const release = async () => {
    if (!locked) return;
    locked = false;
    await own`rollback`;
    own.release();
  };
  onTestFinished(release);
  return release;
}

const lockCredits =
  ({ spendingId }: Things) =>
  (own: postgres.ISql) =>
    own`select from key_credits where key_id = ${spendingId} for update`;

/** Changes that remove the credits of a key, or copy them. */
const endsCredits = {
  rerollKey: {},
  updateCredits: { operation: "set" },
  updateKey: { credits: null },
} as const;

const waitingInPostgres = async () => {
  const [row] = await sql<{ count: number }[]>`
    select count(*)::int from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()`;
  return row?.count ?? 0;
};
const waitingForConnections = () => readMetric(busy, "pool_waiting_statements");

/** The connections that one workspace may use at a time: for ordinary changes, and for changes that revoke. */
const shares = { ordinary: 3, revocation: 2 };

/** Occupies every connection that a workspace may use on the busy replica, with changes of locked rows. */
async function occupyShares({ firstKey }: Victim): Promise<() => Promise<void>> {
  const { keyId } = await succeed<Things>(other.httpUrl, "keys.createKey", firstKey, { name: busyName });
  const identity = { externalId: busyName };
  const { identityId } = await succeed<Things>(other.httpUrl, "identities.createIdentity", firstKey, identity);
  await succeed(busy.httpUrl, "keys.verifyKey", firstKey, { key: firstKey });
  const release = await lockRows(async (own) => {
    await own`select from identities where identity_id = ${identityId} for update`;
    await own`select from keys where key_id = ${keyId} for update`;
  });
  const post = (operation: string, body: object) => postJson(busy.httpUrl, `/v2/${operation}`, firstKey, body);
  const occupied = [
    ...Array.from({ length: shares.ordinary }, () => post("identities.updateIdentity", { identityId, meta: {} })),
    ...Array.from({ length: shares.revocation }, () => post("keys.updateKey", { keyId, enabled: false })),
  ];
  await expect.poll(waitingInPostgres, { timeout: 10_000 }).toBe(occupied.length);
  return async () => {
    await release();
    await Promise.all(occupied);
  };
}

const busyName = "busy";

/** The keys and identities of a workspace, and the events of a key's changes. */
async function contents({ workspaceId, keyId }: Victim) {
  return {
    keys: [
      ...(await sql`select to_json(k)::jsonb - 'last_used_at' from keys k where workspace_id = ${workspaceId} and name is distinct from ${busyName} order by key_id`),
    ],
    identities: [
      ...(await sql`select * from identities where workspace_id = ${workspaceId} and external_id <> ${busyName} order by 1`),
    ],
    apis: [...(await sql`select * from apis where workspace_id = ${workspaceId} order by 1`)],
    roles: [...(await sql`select * from roles where workspace_id = ${workspaceId} order by 1`)],
    permissions: [...(await sql`select * from permissions where workspace_id = ${workspaceId} order by 1`)],
    credits: [
      ...(await sql`select c.* from key_credits c join keys using (key_id) where workspace_id = ${workspaceId} order by 1`),
    ],
    events: [...(await sql`select event_id, type from audit_events where actor = ${keyId} order by 1`)],
  };
}

/**
 * Queues changes for a connection, revokes their caller, and then lets them run. A queue that has been standing for a
 * second is shed, as it also is on an overloaded machine. The attempt is then repeated with another caller.
 */
async function changesInQueue(
  revoke: (victim: Victim) => Promise<unknown>,
  callsOf: (victim: Victim, things: Things) => readonly Call[] | Promise<readonly Call[]>,
): Promise<{ codes: string[]; before: unknown; after: unknown }> {
  for (let attemptsLeft = 5; ; attemptsLeft--) {
    const victim = await createVictim(other);
    const things = await createThings(victim);
    await succeed(busy.httpUrl, "keys.verifyKey", victim.key, { key: victim.key });
    const calls = await callsOf(victim, things);
    const release = await occupyShares(victim);
    let over = false;
    const ended = makeCalls(victim, calls).finally(() => {
      over = true;
    });
    const allWait = async () => over || (await waitingForConnections()) >= calls.length;
    await expect.poll(allWait, { timeout: 10_000, interval: 5 }).toBe(true);
    await revoke(victim);
    const before = await contents(victim);
    await release();
    const codes = await ended;
    if (attemptsLeft > 0 && codes.includes("application/service_unavailable")) continue;
    return { codes, before, after: await contents(victim) };
  }
}

describe.each(revocations)(
  "revocation race: changes that wait for a connection while $name is acknowledged",
  ({ name, revoke, code }) => {
    test("are refused with the right error, and change nothing", async () => {
      const grants = name.includes("than the change grants");
      const { codes, before, after } = await changesInQueue(
        (victim) => revoke(other, victim),
        // The others are still authorized.
        (_victim, things) => (grants ? changesOf(things).slice(0, 3) : changesOf(things)),
      );
      expect(new Set(codes)).toEqual(new Set([code]));
      expect(after).toEqual(before);
    });

    test("are refused also if a key changes itself", async () => {
      const grants = name.includes("than the change grants");
      const { codes, before, after } = await changesInQueue(
        (victim) => revoke(other, victim),
        (victim) => (grants ? changesOfItself(victim).slice(1, 2) : changesOfItself(victim)),
      );
      expect(new Set(codes)).toEqual(new Set([code]));
      expect(after).toEqual(before);
    });
  },
);

describe("revocation race: a stored response of an Idempotency-Key", () => {
  test("is not returned to a caller that is revoked while its retry waits for a connection", async () => {
    const headers = [["idempotency-key", "the same"]] as const;
    const create: Call = ["createKey", { name: "created" }, headers];
    const { codes } = await changesInQueue(
      ({ firstKey, keyId }) => succeed(other.httpUrl, "keys.deleteKey", firstKey, { keyId }),
      () => [create, create, create, create],
    );
    expect(new Set(codes)).toEqual(new Set(["authentication/key_not_found"]));
  });

  test("is not returned to a caller that was revoked before the retry's statement", async () => {
    const headers = [["idempotency-key", "stored"]] as const;
    const { codes, before, after } = await changesInQueue(
      ({ firstKey, keyId }) => succeed(other.httpUrl, "keys.updateKey", firstKey, { keyId, enabled: false }),
      async (victim) => {
        const create: Call = ["createIdentity", { externalId: "stored" }, headers];
        expect(await makeCalls(victim, [create, create])).toEqual(["ok", "ok"]);
        return [create, create];
      },
    );
    expect(new Set(codes)).toEqual(new Set(["authorization/key_disabled"]));
    expect(after).toEqual(before);
  });
});

test("a change that waits for a connection is made if its caller is changed but still authorized", async () => {
  const { codes } = await changesInQueue(
    ({ firstKey, keyId }) =>
      succeed(other.httpUrl, "keys.updateKey", firstKey, { keyId, scopes: ["keys.create"], name: "renamed" }),
    () => [["createKey", { name: "made" }]],
  );
  expect(codes).toEqual(["ok"]);
});

test("the operator's changes do not wait for the connections of a workspace", async () => {
  const victim = await createVictim(other);
  const release = await occupyShares(victim);
  await succeed(busy.httpUrl, "workspaces.disableWorkspace", operatorKey, {
    workspaceId: victim.workspaceId,
    reason: "UNPAID_BILLING",
  });
  await release();
});

describe("revocation race: a change whose statement waits for a PostgreSQL lock while its caller is revoked", () => {
  type LockCase = [
    string,
    callOf: (victim: Victim, things: Things) => Call,
    lockOf: (things: Things) => (own: postgres.ISql) => Promise<unknown>,
  ];

  test.each<LockCase>([
    [
      "on an identity",
      () => ["createKey", { scopes: ["*"], externalId: "user" }],
      ({ identityId }) =>
        (own) =>
          own`select from identities where identity_id = ${identityId} for update`,
    ],
    [
      "on a key",
      (_victim, { keyId }) => ["updateKey", { keyId, name: "late" }],
      ({ keyId }) =>
        (own) =>
          own`select from keys where key_id = ${keyId} for update`,
    ],
    [
      "on the identity to delete",
      (_victim, { identityId }) => ["deleteIdentity", { identityId }],
      ({ identityId }) =>
        (own) =>
          own`select from identities where identity_id = ${identityId} for update`,
    ],
    ...(["rerollKey", "updateCredits", "updateKey"] as const).map(
      (operation): LockCase => [
        `on the credits of a key, by ${operation}`,
        (_victim, { spendingId: keyId }) => [operation, { keyId, ...endsCredits[operation] }],
        lockCredits,
      ],
    ),
    [
      "on the row of its workspace, by a first import",
      () => ["migrateKeys", { migrationId: "m", keys: [{ hash: newHash() }] }],
      ({ keyId }) =>
        (own) =>
          own`select from workspaces where workspace_id = (select workspace_id from keys where key_id = ${keyId})
            for no key update`,
    ],
  ])("%s is refused", async (name, callOf, lockOf) => {
    const applicable = revocations.filter(
      (revocation) =>
        !revocation.name.includes("than the change grants") &&
        // They would wait for the same row.
        !(name.includes("of its workspace") && revocation.name.endsWith("Workspace")),
    );
    for (const { revoke, code } of applicable) {
      const victim = await createVictim(other);
      const things = await createThings(victim);
      const release = await lockRows(lockOf(things));
      const ended = makeCalls(victim, [callOf(victim, things)]);
      await expect.poll(waitingInPostgres, { timeout: 5_000 }).toBe(1);
      await revoke(other, victim);
      const before = await contents(victim);
      await release();
      expect(await ended).toEqual([code]);
      expect(await contents(victim)).toEqual(before);
    }
  });

  test("on its own row is refused: a key cannot regain a scope that it lost", async () => {
    const victim = await createVictim(other);
    const own = await sql.reserve();
    await own`begin`;
    await own`update keys set scopes = '{keys.update}', updated_at = now() where key_id = ${victim.keyId}`;
    const ended = makeCalls(victim, [
      ["updateKey", { keyId: victim.keyId, scopes: ["*"] }],
      ["updateKey", { keyId: victim.keyId, name: "late" }],
    ]);
    await expect.poll(waitingInPostgres, { timeout: 5_000 }).toBe(2);
    await own`commit`;
    own.release();
    // The first call is refused because it grants more than the key has. The second is still authorized.
    expect(await ended).toEqual(["authorization/insufficient_permissions", "ok"]);
    const [row] = await sql`select scopes, name from keys where key_id = ${victim.keyId}`;
    expect(row).toEqual({ scopes: ["keys.update"], name: "late" });
  });
});

test("a key that gains scopes while its change waits for its lock is not changed by a caller without them", async () => {
  const { firstKey } = await createVictim(other);
  const scopes = ["keys.update", "keys.delete"];
  const caller = await succeed<{ key: string }>(other.httpUrl, "keys.createKey", firstKey, { scopes });
  const { keyId } = await succeed<Things>(other.httpUrl, "keys.createKey", firstKey, {});
  const own = await sql.reserve();
  await own`begin`;
  await own`update keys set scopes = '{*}' where key_id = ${keyId}`;
  const ended = makeCalls(caller, [
    ["updateKey", { keyId, enabled: false }],
    ["deleteKey", { keyId }],
  ]);
  await expect.poll(waitingInPostgres, { timeout: 5_000 }).toBe(2);
  await own`commit`;
  own.release();
  const refused = "authorization/insufficient_permissions";
  expect(await ended).toEqual([refused, refused]);
  const [row] = await sql`select enabled, deleted_at from keys where key_id = ${keyId}`;
  expect(row).toEqual({ enabled: true, deleted_at: null });
});

describe("a change that waits until its caller has expired", () => {
  const lifetimeMs = 3_600_000;

  /** By the database's clock, which is ahead of the others after the first of these tests. */
  async function setExpiry({ firstKey, keyId }: Victim): Promise<void> {
    const [row] = await sql<{ now: Date }[]>`select clock_timestamp() as now`;
    const expires = Number(row?.now) + lifetimeMs;
    await succeed(other.httpUrl, "keys.updateKey", firstKey, { keyId, expires });
  }

  /** A key that expires cannot give scopes to keys that do not. */
  const changesWithoutScopes = (things: Things) => changesOf(things).filter(([, request]) => !("scopes" in request));
  const renamings = (keyId: string): Call[] => [
    ["updateKey", { keyId, name: "late" }],
    ["updateKey", { keyId, meta: { late: true } }],
  ];

  test.each<[string, (victim: Victim, things: Things) => readonly Call[]]>([
    ["is refused, and changes nothing", (_victim, things) => changesWithoutScopes(things)],
    ["is refused also if the key changes itself", ({ keyId }) => renamings(keyId)],
  ])("for a connection %s", async (_name, callsOf) => {
    const { codes, before, after } = await changesInQueue(
      () => other.advance(lifetimeMs),
      async (victim, things) => {
        await setExpiry(victim);
        return callsOf(victim, things);
      },
    );
    expect(new Set(codes)).toEqual(new Set(["authentication/key_expired"]));
    expect(after).toEqual(before);
  });

  test.each(["rerollKey", "updateCredits", "updateKey"] as const)(
    "for the lock of the credits of a key is refused, and changes nothing: %s",
    async (operation) => {
      const victim = await createVictim(other);
      const things = await createThings(victim);
      await setExpiry(victim);
      const release = await lockRows(lockCredits(things));
      const ended = makeCalls(victim, [[operation, { keyId: things.spendingId, ...endsCredits[operation] }]]);
      await expect.poll(waitingInPostgres, { timeout: 5_000 }).toBe(1);
      await other.advance(lifetimeMs);
      const before = await contents(victim);
      await release();
      expect(await ended).toEqual(["authentication/key_expired"]);
      expect(await contents(victim)).toEqual(before);
    },
  );

  test.each<[string, (victim: Victim, things: Things) => string]>([
    ["the lock of a key", (_victim, { keyId }) => keyId],
    ["the lock of its own row", ({ keyId }) => keyId],
  ])("for %s is refused, and changes nothing", async (_name, keyIdOf) => {
    const victim = await createVictim(other);
    const things = await createThings(victim);
    await setExpiry(victim);
    const keyId = keyIdOf(victim, things);
    const release = await lockRows((own) => own`select from keys where key_id = ${keyId} for update`);
    const ended = makeCalls(victim, renamings(keyId));
    await expect.poll(waitingInPostgres, { timeout: 5_000 }).toBe(2);
    await other.advance(lifetimeMs);
    const before = await contents(victim);
    await release();
    expect(await ended).toEqual(["authentication/key_expired", "authentication/key_expired"]);
    expect(await contents(victim)).toEqual(before);
  });
});

describe("a key may revoke itself", () => {
  test.each<[string, (victim: Victim) => Call]>([
    ["by deleteKey", ({ keyId }) => ["deleteKey", { keyId }]],
    ["by updateKey", ({ keyId }) => ["updateKey", { keyId, enabled: false }]],
    ["by giving up its scopes", ({ keyId }) => ["updateKey", { keyId, scopes: [] }]],
    ["by rerollKey", ({ keyId }) => ["rerollKey", { keyId }]],
  ])("%s", async (_name, callOf) => {
    const victim = await createVictim(other);
    expect(await makeCalls(victim, [callOf(victim)])).toEqual(["ok"]);
  });
});
