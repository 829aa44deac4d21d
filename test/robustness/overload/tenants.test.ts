import { setTimeout as sleep } from "node:timers/promises";
import type postgres from "postgres";
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from "vitest";
import { openSql } from "../../../commands/open-sql.js";
import { mintSecret } from "../../../src/keys/secret.js";
import { createWorkspace } from "../../support/clients/http-requests.js";
import { type Fields, openUnchecked, type UncheckedClient } from "../../support/clients/unchecked.js";
import { openTestApp, operatorKey, type TestApp } from "../../support/harness.js";
import { readSamples, total } from "../../support/metric-samples.js";
import type { OperationName } from "../../support/operations.js";
import { median } from "../../support/stopwatch.js";

interface Tenant {
  readonly workspaceId: string;
  readonly key: string;
}

let app: TestApp;
let sql: postgres.Sql;
let attacker: Tenant;
let other: Tenant;
let protocols: readonly UncheckedClient[];

beforeAll(async () => {
  // The clients run in this process, too, so the service must not shed calls because of its CPU load.
  app = await openTestApp({ metricsPort: 0, guard: { accepts: () => true } });
  sql = openSql(app.databaseUrl, { max: 2, onnotice: () => {} });
  [attacker, other] = await Promise.all([createWorkspace(app.httpUrl), createWorkspace(app.httpUrl)]);
  protocols = openClients();
});
afterAll(async () => {
  for (const protocol of protocols) protocol.close();
  await sql.end({ timeout: 1 });
  await app.close();
});

/** How often each call is measured before, during and after the attack. */
const rounds = 3;

/** Differences below this are noise of the machine. */
const minMs = 150;

/** How many calls the attacker has in flight over each protocol. */
const inFlightPerProtocol = 8;

/** A client of each protocol. */
function openClients(): UncheckedClient[] {
  return (["HTTP", "gRPC by connect-node", "Connect"] as const).map((kind) => openUnchecked(kind, app));
}

async function succeed(protocol: UncheckedClient, operation: OperationName, credential: string, request: Fields) {
  const outcome = await protocol.call(operation, credential, request);
  if (outcome.kind !== "success") throw new Error(`${operation} over ${protocol.name}: ${JSON.stringify(outcome)}`);
  return outcome.data as Record<string, string>;
}

async function makeKey({ key }: Tenant): Promise<string> {
  const { keyId } = await succeed(protocols[0] as UncheckedClient, "createKey", key, {});
  return keyId as string;
}

/** Locks the row of a key, like a slow statement, until the lock is released or the test ends. */
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

/** Starts the most expensive calls of a tenant. Resolves when they occupy all connections that it can get. */
async function attack(lockedId: string): Promise<() => Promise<void>> {
  const expensive: readonly [OperationName, () => Fields][] = [
    ["updateKey", () => ({ keyId: lockedId, name: "waits" })],
    ["updateKey", () => ({ keyId: lockedId, enabled: false })],
    ["deleteKey", () => ({ keyId: lockedId })],
    ["listIdentities", () => ({ search: "nowhere" })],
    ["verifyKey", () => ({ key: mintSecret().plaintext })],
  ];
  let stopped = false;
  const callRepeatedly = async (protocol: UncheckedClient, first: number) => {
    for (let index = first; !stopped; index++) {
      const [operation, request] = expensive[index % expensive.length] ?? [];
      if (operation !== undefined) await protocol.call(operation, attacker.key, request?.() ?? {});
      await sleep(100);
    }
  };
  const calls = protocols.flatMap((protocol) =>
    Array.from({ length: inFlightPerProtocol }, (_, index) => callRepeatedly(protocol, index)),
  );
  const end = async () => {
    stopped = true;
    await Promise.all(calls);
  };
  onTestFinished(end);
  // Until its share of connections is used up, and the queues are full.
  await sleep(1_500);
  return end;
}

/** Measures the calls that must keep working, by operation and protocol. */
async function measure(rounds: number): Promise<Map<string, number[]>> {
  const times = new Map<string, number[]>();
  const timed = async (protocol: UncheckedClient, operation: OperationName, credential: string, request: Fields) => {
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

const busy = async () => total(await readSamples(app), "latchkey_pool_connections", { state: "busy" });

describe("tenant isolation: while one tenant sends expensive calls", () => {
  it("another tenant's lists and revocations, and the operator's, take at most twice their normal time, or 300 ms", async () => {
    await measure(1); // opens connections and prepares statements
    const before = await measure(rounds);
    const lockedId = await makeKey(attacker);
    const release = await lockKey(lockedId);
    const end = await attack(lockedId);
    await measure(1); // opens further connections
    const attacked = await measure(rounds);
    // The attacker's shares for changes, for revocations and for lookups.
    expect(await busy()).toBeLessThanOrEqual(3 + 2 + 3);
    await release();
    await end();
    const after = await measure(rounds);
    for (const [name, times] of attacked) {
      const normalMs = Math.max(minMs, ...(before.get(name) ?? []), ...(after.get(name) ?? []));
      expect(median(times), `${name}, normally up to ${normalMs} ms`).toBeLessThan(2 * normalMs);
    }
    expect(attacked.size).toBe(4 * protocols.length);
  }, 120_000);

  it("its locked key row does not delay revocations of another tenant's keys used at the same time", async () => {
    const protocol = protocols[0] as UncheckedClient;
    // The other tenant's keys are older, so the update of the last-used times locks them first.
    const others = await Promise.all(Array.from({ length: 4 }, () => succeed(protocol, "createKey", other.key, {})));
    const locked = await succeed(protocol, "createKey", attacker.key, {});
    const use = (key: string | undefined, by: Tenant) => succeed(protocol, "verifyKey", by.key, { key });

    /** Uses keys of both tenants, waits until the last-used times are being stored, and measures a disable. */
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

    const normalMs = await disableAfterUse(others.pop());
    const lastUse = await readLastUse();
    const release = await lockKey(locked["keyId"] as string);
    expect(await disableAfterUse(others.pop())).toBeLessThan(2 * Math.max(normalMs, minMs));
    await release();
    await expect.poll(readLastUse, { timeout: 10_000, interval: 200 }).not.toEqual(lastUse);
  });
});

it("a thousand calls with unknown keys do not cause refusals of callers whose keys are not cached", async () => {
  const [protocol] = protocols as [UncheckedClient];
  const created = await Promise.all(
    Array.from({ length: 9 }, () => succeed(protocol, "createKey", other.key, { scopes: ["keys.read"] })),
  );
  const unknownClients = openClients();
  onTestFinished(() => {
    for (const client of unknownClients) client.close();
  });
  const outcomes = new Map<string, number>();
  let remaining = 1_000;
  const flood = async (client: UncheckedClient) => {
    while (remaining-- > 0) {
      const outcome = await client.call("listKeys", mintSecret().plaintext, {});
      const result = outcome.kind === "refused" ? outcome.code : outcome.kind;
      outcomes.set(result, (outcomes.get(result) ?? 0) + 1);
    }
  };
  const flooding = Promise.all(unknownClients.flatMap((client) => Array.from({ length: 25 }, () => flood(client))));
  for (const [index, { key }] of created.entries()) {
    await succeed(protocols[index % protocols.length] as UncheckedClient, "listKeys", key as string, {});
  }
  await flooding;
  expect([...outcomes]).toEqual([["key_not_found", 1_000]]);
}, 120_000);

it("a stolen key that sends revocations continuously does not prevent its owner from revoking it", async () => {
  const [protocol] = protocols as [UncheckedClient];
  const stolen = await succeed(protocol, "createKey", other.key, { scopes: ["keys.update", "keys.read"] });
  const lockedId = await makeKey(other);
  const others = await Promise.all(Array.from({ length: 40 }, () => makeKey(other)));
  const release = await lockKey(lockedId);
  const revoke = (keyId: string, place: number) =>
    (protocols[place % protocols.length] as UncheckedClient).call("updateKey", stolen["key"] as string, {
      keyId,
      permissions: ["less"],
    });
  // These occupy both connections that a workspace may use for revocations. The others queue behind them.
  const first = [lockedId, lockedId].map(revoke);
  const waiting = async () =>
    (await sql`select from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()`).length;
  await expect.poll(waiting, { timeout: 10_000 }).toBe(2);
  const queue = others.map(revoke);
  const queued = async () => total(await readSamples(app), "latchkey_pool_waiting_statements");
  await expect.poll(queued, { timeout: 10_000 }).toBeGreaterThanOrEqual(others.length);
  const revoked = succeed(protocol, "deleteKey", other.key, { keyId: stolen["keyId"] });
  await expect.poll(queued, { timeout: 10_000 }).toBeGreaterThanOrEqual(others.length + 1);
  await release();
  await revoked;
  await Promise.all([...first, ...queue]);
  const events = await sql`
    select from audit_events where actor = ${stolen["keyId"] as string} and resource_id = any(${others})`;
  expect(events.length).toBeLessThan(others.length / 2);
});
