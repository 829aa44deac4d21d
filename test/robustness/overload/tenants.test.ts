import { setTimeout as sleep } from "node:timers/promises";
import type postgres from "postgres";
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from "vitest";
import { openSql } from "../../../commands/open-sql.js";
import { mintSecret } from "../../../src/keys/secret.js";
import type { OperationName } from "../../contract/operations.js";
import { createWorkspace } from "../../support/clients/http-requests.js";
import { openTestApp, operatorKey, type TestApp } from "../../support/harness.js";
import { readSamples, total } from "../../support/metric-samples.js";
import { openConnect, openGrpc, openHttp, type ProtocolClient } from "../soak/protocol-clients.js";

interface Tenant {
  readonly workspaceId: string;
  readonly key: string;
}

let app: TestApp;
let sql: postgres.Sql;
let attacker: Tenant;
let other: Tenant;
let protocols: readonly ProtocolClient[];

beforeAll(async () => {
  // This process is the clients, too: it is not to refuse calls for want of its own time.
  app = await openTestApp({ metricsPort: 0, guard: { accepts: () => true } });
  sql = openSql(app.databaseUrl, { max: 2, onnotice: () => {} });
  [attacker, other] = await Promise.all([createWorkspace(app.httpUrl), createWorkspace(app.httpUrl)]);
  protocols = [openHttp(app.httpUrl), openGrpc(`http://${app.grpcAddress}`), openConnect(app.httpUrl)];
});
afterAll(async () => {
  for (const protocol of protocols) protocol.close();
  await sql.end({ timeout: 1 });
  await app.close();
});

/** How often each call is made: before, during and after the attack. */
const rounds = 3;

/** What is shorter than this is told from no time at all by nothing but the machine. */
const leastMs = 150;

/** How many calls the attacker has open at any time, on each protocol. */
const open = 8;

async function succeed(protocol: ProtocolClient, operation: OperationName, credential: string, request: object) {
  const answer = await protocol.call(operation, credential, request);
  if ("failed" in answer) throw new Error(`${operation} over ${protocol.name}: ${answer.failed} (${answer.detail})`);
  return answer.fields as Record<string, string>;
}

async function makeKey({ key }: Tenant): Promise<string> {
  const { keyId } = await succeed(protocols[0] as ProtocolClient, "createKey", key, {});
  return keyId as string;
}

/** Locks a row of a key, as a statement that takes long does, until the test is done or the lock is released. */
async function lockKey(keyId: string): Promise<() => Promise<void>> {
  const own = await sql.reserve();
  let released = false;
  await own`begin`;
  await own`select from keys where key_id = ${keyId} for update`;
  const release = async () => {
    if (released) return;
    released = true;
    await own`rollback`;
    own.release();
  };
  onTestFinished(release);
  return release;
}

/** Begins the worst that a tenant can do with its key. Resolves when it has as many connections as it gets. */
async function attack(lockedId: string): Promise<() => Promise<void>> {
  const worst: readonly [OperationName, () => object][] = [
    ["updateKey", () => ({ keyId: lockedId, name: "waits" })],
    ["updateKey", () => ({ keyId: lockedId, enabled: false })],
    ["deleteKey", () => ({ keyId: lockedId })],
    ["listIdentities", () => ({ search: "nowhere" })],
    ["verifyKey", () => ({ key: mintSecret().plaintext })],
  ];
  let stopped = false;
  const callOnAndOn = async (protocol: ProtocolClient, first: number) => {
    for (let index = first; !stopped; index++) {
      const [operation, request] = worst[index % worst.length] ?? [];
      if (operation !== undefined) await protocol.call(operation, attacker.key, request?.() ?? {});
      await sleep(100);
    }
  };
  const calls = protocols.flatMap((protocol) =>
    Array.from({ length: open }, (_, index) => callOnAndOn(protocol, index)),
  );
  const end = async () => {
    stopped = true;
    await Promise.all(calls);
  };
  onTestFinished(end);
  // Until what can be had at first has been had, and the queues stand.
  await sleep(1_500);
  return end;
}

/** The calls that have to go on, and how long each took every time, by protocol. */
async function measure(rounds: number): Promise<Map<string, number[]>> {
  const times = new Map<string, number[]>();
  const timed = async (protocol: ProtocolClient, operation: OperationName, credential: string, request: object) => {
    const startedAt = performance.now();
    await succeed(protocol, operation, credential, request);
    const name = `${operation} over ${protocol.name}`;
    times.set(name, [...(times.get(name) ?? []), performance.now() - startedAt]);
  };
  for (let round = 0; round < rounds; round++) {
    for (const protocol of protocols) {
      const keyId = await makeKey(other);
      await timed(protocol, "listKeys", other.key, {});
      await timed(protocol, "updateKey", other.key, { keyId, enabled: false });
      await timed(protocol, "deleteKey", other.key, { keyId });
      const { workspaceId } = attacker;
      await timed(protocol, "disableWorkspace", operatorKey, { workspaceId, reason: "TERMS_VIOLATION" });
      await succeed(protocol, "enableWorkspace", operatorKey, { workspaceId });
    }
  }
  return times;
}

function median(values: readonly number[]): number {
  return [...values].sort((one, next) => one - next)[Math.floor(values.length / 2)] ?? Number.NaN;
}

const busy = async () => total(await readSamples(app), "latchkey_pool_connections", { state: "busy" });

describe("while one tenant does its worst", () => {
  it("another tenant's lists and revocations, and the operator's, take no more than twice their usual time", async () => {
    await measure(1); // connections are made, and statements prepared
    const before = await measure(rounds);
    const lockedId = await makeKey(attacker);
    const release = await lockKey(lockedId);
    const end = await attack(lockedId);
    await measure(1); // on connections that nobody has needed before
    const attacked = await measure(rounds);
    // Its share for changes, that for revocations, and that for lookups.
    expect(await busy()).toBeLessThanOrEqual(3 + 2 + 3);
    await release();
    await end();
    const after = await measure(rounds);
    for (const [name, times] of attacked) {
      const usualMs = Math.max(leastMs, ...(before.get(name) ?? []), ...(after.get(name) ?? []));
      expect(median(times), `${name}, usually up to ${usualMs} ms`).toBeLessThan(2 * usualMs);
    }
    expect(attacked.size).toBe(4 * protocols.length);
  }, 120_000);

  it("a key of its that is locked does not keep another tenant's key, used at the same time, from being revoked", async () => {
    const protocol = protocols[0] as ProtocolClient;
    // The keys of the other tenant are the older ones: they are locked first when it is stored that all were used.
    const others = await Promise.all(Array.from({ length: 4 }, () => succeed(protocol, "createKey", other.key, {})));
    const locked = await succeed(protocol, "createKey", attacker.key, {});
    const use = (key: string | undefined, by: Tenant) => succeed(protocol, "verifyKey", by.key, { key });

    /** Uses the keys of both, waits until that is being stored, and tells how long it then takes to disable one. */
    async function disableAfterUse({ key, keyId }: Record<string, string> = {}): Promise<number> {
      await use(key, other);
      await use(locked["key"], attacker);
      await sleep(2_500);
      const startedAt = performance.now();
      await succeed(protocol, "updateKey", other.key, { keyId, enabled: false });
      return performance.now() - startedAt;
    }
    const readLastUse = async () => {
      const [row] = await sql`select last_used_at from keys where key_id = ${locked["keyId"] as string}`;
      return row?.["last_used_at"];
    };

    const usualMs = await disableAfterUse(others.pop());
    const lastUse = await readLastUse();
    const release = await lockKey(locked["keyId"] as string);
    expect(await disableAfterUse(others.pop())).toBeLessThan(2 * Math.max(usualMs, leastMs));
    await release();
    await expect.poll(readLastUse, { timeout: 10_000, interval: 200 }).not.toEqual(lastUse);
  });
});

it("a thousand unknown keys that strangers bring refuse nobody whose key has to be looked up", async () => {
  const [protocol] = protocols as [ProtocolClient];
  const made = await Promise.all(
    Array.from({ length: 9 }, () => succeed(protocol, "createKey", other.key, { scopes: ["keys.read"] })),
  );
  const strangers = [openHttp(app.httpUrl), openGrpc(`http://${app.grpcAddress}`), openConnect(app.httpUrl)];
  onTestFinished(() => {
    for (const stranger of strangers) stranger.close();
  });
  const outcomes = new Map<string, number>();
  let left = 1_000;
  const bring = async (stranger: ProtocolClient) => {
    while (left-- > 0) {
      const answer = await stranger.call("listKeys", mintSecret().plaintext, {});
      const outcome = "failed" in answer ? answer.failed : "OK";
      outcomes.set(outcome, (outcomes.get(outcome) ?? 0) + 1);
    }
  };
  const flood = Promise.all(strangers.flatMap((stranger) => Array.from({ length: 25 }, () => bring(stranger))));
  for (const [index, { key }] of made.entries()) {
    await succeed(protocols[index % protocols.length] as ProtocolClient, "listKeys", key as string, {});
  }
  await flood;
  expect([...outcomes]).toEqual([["Unauthenticated", 1_000]]);
}, 120_000);

it("a stolen key that revokes all the time does not keep its owner from revoking it", async () => {
  const [protocol] = protocols as [ProtocolClient];
  const thief = await succeed(protocol, "createKey", other.key, { scopes: ["keys.update", "keys.read"] });
  const lockedId = await makeKey(other);
  const others = await Promise.all(Array.from({ length: 40 }, () => makeKey(other)));
  const release = await lockKey(lockedId);
  const revoke = (keyId: string, place: number) =>
    (protocols[place % protocols.length] as ProtocolClient).call("updateKey", thief["key"] as string, {
      keyId,
      permissions: ["less"],
    });
  // These have both connections that a workspace has for revocations; the others wait behind them.
  const first = [lockedId, lockedId].map(revoke);
  const waiting = async () =>
    (await sql`select from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()`).length;
  await expect.poll(waiting, { timeout: 10_000 }).toBe(2);
  const queue = others.map(revoke);
  const queued = async () => total(await readSamples(app), "latchkey_pool_waiting_statements");
  await expect.poll(queued, { timeout: 10_000 }).toBeGreaterThanOrEqual(others.length);
  const ended = succeed(protocol, "deleteKey", other.key, { keyId: thief["keyId"] });
  await expect.poll(queued, { timeout: 10_000 }).toBeGreaterThanOrEqual(others.length + 1);
  await release();
  await ended;
  await Promise.all([...first, ...queue]);
  const made = await sql`
    select from audit_events where actor = ${thief["keyId"] as string} and resource_id = any(${others})`;
  expect(made.length).toBeLessThan(others.length / 2);
});
