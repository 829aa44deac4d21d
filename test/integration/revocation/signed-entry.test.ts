import { once } from "node:events";
import { connect, type Socket } from "node:net";
import { createInterface } from "node:readline";
import { afterAll, beforeAll, describe, expect, inject, it } from "vitest";
import { addressOf } from "../../support/backend-address.js";
import { disable, enable, listKeys } from "../../support/clients/verify-calls.js";
import { type TestApp, twoRenewals } from "../../support/harness.js";
import {
  type CachedWorkspace,
  callBoth,
  createCachedWorkspace,
  keyEntryOf,
  outcomes,
  readLookups,
  workspaceEntryOf,
} from "../../support/redis-entries.js";
import { openReplicas } from "../../support/redis-replicas.js";

const replicas = openReplicas();
let monitor: Socket;
/** All commands that Redis received, from any client, since this was cleared. */
const commands: string[] = [];

beforeAll(async () => {
  // A raw socket: ioredis fails if a line of the monitor arrives together with the answer to MONITOR.
  monitor = connect(addressOf(inject("redisUrl")));
  monitor.write("MONITOR\r\n");
  const lines = createInterface(monitor);
  expect(await once(lines, "line")).toEqual(["+OK"]);
  lines.on("line", (line) => {
    const [, command = "", name = ""] = /^\+[\d.]+ \[.*?\] "(\w+)" "([^"]*)"/.exec(line) ?? [];
    commands.push(`${command.toLowerCase()} ${name}`);
  });
});
afterAll(() => void monitor.destroy());

/** The reads of a workspace and its key that Redis receives during `act`. */
async function redisReads({ workspaceId, key }: CachedWorkspace, act: () => Promise<unknown>): Promise<string[]> {
  await monitored(`begin of ${workspaceId}`);
  commands.length = 0;
  await act();
  await monitored(`end of ${workspaceId}`);
  return commands.filter(
    (line) => line.startsWith("get ") && [workspaceId, keyEntryOf(key)].some((one) => line.endsWith(one)),
  );
}

/** Resolves when the monitor has shown all commands so far. It shows them in the order of their arrival. */
async function monitored(mark: string): Promise<void> {
  await replicas.redis.exists(mark);
  await expect.poll(() => commands.includes(`exists ${mark}`), { interval: 5, timeout: 10_000 }).toBe(true);
}

/** The number of lookups that each level of a replica answers during `act`. */
async function lookups(replica: TestApp, act: () => Promise<unknown>): Promise<Record<string, number>> {
  const before = await readLookups(replica);
  await act();
  const grown = Object.entries(await readLookups(replica)).map(([what, count]) => [what, count - (before[what] ?? 0)]);
  return Object.fromEntries(grown.filter(([, count]) => count !== 0));
}

describe("the entry that a replica writes to Redis", () => {
  it("is signed, named by the workspace's id or the key's hash, and does not contain the secret", async () => {
    const { key, workspaceEntry, keyEntry } = await createCachedWorkspace(replicas.app, replicas.redis);
    expect(workspaceEntry).toMatch(/^[\w-]{43}\.enabled@\d+:\d+:[\d,]*$/);
    expect(keyEntry).toMatch(/^[\w-]{43}\.\{.*\}$/);
    expect(keyEntry).not.toContain(key);
    expect(keyEntry).not.toContain(key.slice(-39));
  });

  it("expires after some minutes", async () => {
    const { workspaceId, key } = await createCachedWorkspace(replicas.app, replicas.redis);
    for (const name of [workspaceEntryOf(workspaceId), keyEntryOf(key)]) {
      const lifetimeMs = await replicas.redis.pttl(name);
      expect(lifetimeMs).toBeGreaterThan(60_000);
      expect(lifetimeMs).toBeLessThanOrEqual(10 * 60_000);
    }
  });

  it("is the new state of a workspace after a disable and after an enable, once a call has read it", async () => {
    const { workspaceId, key } = await createCachedWorkspace(replicas.app, replicas.redis);
    // A single write may time out on a busy machine, so each change is repeated until one has arrived.
    for (const [change, state] of [
      [disable, /\.disabled@/],
      [enable, /\.enabled@/],
    ] as const) {
      const entry = async () => {
        await change(replicas.app, workspaceId);
        await listKeys(replicas.app, key);
        return replicas.redis.get(workspaceEntryOf(workspaceId));
      };
      await expect.poll(entry, { timeout: 10_000 }).toMatch(state);
    }
  });
});

// A replica uses an entry only if it has polled the change log since the entry was read from PostgreSQL. So the tests that expect
// a lookup in Redis wait for a poll.
describe("the cache levels that another replica reads", () => {
  it("for a key that it has not cached: Redis once, and PostgreSQL not at all", async () => {
    const [other] = replicas.others;
    const shared = await createCachedWorkspace(replicas.app, replicas.redis);
    await twoRenewals(other);
    const found = lookups(other, async () => {
      expect(await redisReads(shared, () => listKeys(other, shared.key))).toEqual([`get ${keyEntryOf(shared.key)}`]);
    });
    expect(await found).toEqual({ "key redis": 1, "workspace memory": 1 });
  });

  it("for a key that it has cached: none", async () => {
    const [other] = replicas.others;
    const shared = await createCachedWorkspace(replicas.app, replicas.redis);
    expect(await callBoth(replicas.others, shared.key)).toEqual(outcomes.served);
    const calls = async () => {
      for (let count = 0; count < 20; count++) await listKeys(other, shared.key);
    };
    const found = lookups(other, async () => expect(await redisReads(shared, calls)).toEqual([]));
    expect(await found).toEqual({ "key memory": 20, "workspace memory": 20 });
  });

  it("for a cached key of a workspace that has changed: Redis once", async () => {
    const [other] = replicas.others;
    const shared = await createCachedWorkspace(replicas.app, replicas.redis);
    await listKeys(other, shared.key);
    await disable(replicas.app, shared.workspaceId);
    await listKeys(replicas.app, shared.key);
    await expect.poll(() => replicas.redis.get(workspaceEntryOf(shared.workspaceId))).toMatch(/\.disabled@/);
    await twoRenewals(other);
    const found = lookups(other, async () => {
      const entry = workspaceEntryOf(shared.workspaceId);
      expect(await redisReads(shared, () => listKeys(other, shared.key))).toEqual([`get ${entry}`]);
    });
    expect(await found).toEqual({ "key memory": 1, "workspace redis": 1 });
    expect(await callBoth(replicas.others, shared.key)).toEqual(outcomes.workspaceDisabled);
  });

  it("for a key whose entries are lost: PostgreSQL, and it writes the result to Redis", async () => {
    const [other] = replicas.others;
    const { workspaceId, key } = await createCachedWorkspace(replicas.app, replicas.redis);
    await replicas.redis.del(workspaceEntryOf(workspaceId), keyEntryOf(key));
    expect(await lookups(other, () => listKeys(other, key))).toMatchObject({ "key postgres": 1 });
    await expect.poll(() => replicas.redis.exists(workspaceEntryOf(workspaceId), keyEntryOf(key))).toBe(2);
  });
});
