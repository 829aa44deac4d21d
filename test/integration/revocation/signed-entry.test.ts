import { once } from "node:events";
import { connect, type Socket } from "node:net";
import { createInterface } from "node:readline";
import { afterAll, beforeAll, describe, expect, inject, it } from "vitest";
import { addressOf } from "../../support/backend-address.js";
import { disable, enable, listKeys } from "../../support/clients/verify-calls.js";
import type { TestApp } from "../../support/harness.js";
import {
  askBoth,
  createShared,
  keyEntryOf,
  outcomes,
  readLookups,
  type Shared,
  workspaceEntryOf,
} from "../../support/redis-entries.js";
import { openReplicas } from "../../support/redis-replicas.js";

const replicas = openReplicas();
let monitor: Socket;
/** What Redis was asked, by anybody, since this was emptied. */
const asked: string[] = [];

beforeAll(async () => {
  // By hand: ioredis breaks if a line of the monitor comes together with the answer to MONITOR.
  monitor = connect(addressOf(inject("redisUrl")));
  monitor.write("MONITOR\r\n");
  const lines = createInterface(monitor);
  expect(await once(lines, "line")).toEqual(["+OK"]);
  lines.on("line", (line) => {
    const [, command = "", name = ""] = /^\+[\d.]+ \[.*?\] "(\w+)" "([^"]*)"/.exec(line) ?? [];
    asked.push(`${command.toLowerCase()} ${name}`);
  });
});
afterAll(() => void monitor.destroy());

/** What Redis is asked about a workspace and its key while something is done. */
async function questions({ workspaceId, key }: Shared, act: () => Promise<unknown>): Promise<string[]> {
  await shown(`begin of ${workspaceId}`);
  asked.length = 0;
  await act();
  await shown(`end of ${workspaceId}`);
  return asked.filter(
    (line) => line.startsWith("get ") && [workspaceId, keyEntryOf(key)].some((one) => line.endsWith(one)),
  );
}

/** Resolves when all that Redis was asked so far has been shown, for it is shown in the order of asking. */
async function shown(mark: string): Promise<void> {
  await replicas.redis.exists(mark);
  await expect.poll(() => asked.includes(`exists ${mark}`), { interval: 5, timeout: 10_000 }).toBe(true);
}

/** How often a replica found something where, while something is done. */
async function lookups(replica: TestApp, act: () => Promise<unknown>): Promise<Record<string, number>> {
  const before = await readLookups(replica);
  await act();
  const grown = Object.entries(await readLookups(replica)).map(([what, count]) => [what, count - (before[what] ?? 0)]);
  return Object.fromEntries(grown.filter(([, count]) => count !== 0));
}

describe("what a replica leaves in Redis", () => {
  it("is sealed, named by the workspace's id and the key's hash, and without the secret", async () => {
    const { key, workspaceEntry, keyEntry } = await createShared(replicas.app, replicas.redis);
    expect(workspaceEntry).toMatch(/^[\w-]{43}\.enabled@\d+:\d+:[\d,]*$/);
    expect(keyEntry).toMatch(/^[\w-]{43}\.\{.*\}$/);
    expect(keyEntry).not.toContain(key);
    expect(keyEntry).not.toContain(key.slice(-39));
  });

  it("goes by itself after some minutes", async () => {
    const { workspaceId, key } = await createShared(replicas.app, replicas.redis);
    for (const name of [workspaceEntryOf(workspaceId), keyEntryOf(key)]) {
      const lifetimeMs = await replicas.redis.pttl(name);
      expect(lifetimeMs).toBeGreaterThan(60_000);
      expect(lifetimeMs).toBeLessThanOrEqual(10 * 60_000);
    }
  });

  it("is the new state of a workspace after a disable and after an enable, once it was asked for", async () => {
    const { workspaceId, key } = await createShared(replicas.app, replicas.redis);
    // A single write may be given up on a busy machine, so each change is repeated until one has arrived.
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

describe("what another replica asks", () => {
  it("for a key that it does not hold: Redis once, and Postgres not at all", async () => {
    const [other] = replicas.others;
    const shared = await createShared(replicas.app, replicas.redis);
    const found = lookups(other, async () => {
      expect(await questions(shared, () => listKeys(other, shared.key))).toEqual([`get ${keyEntryOf(shared.key)}`]);
    });
    expect(await found).toEqual({ "key redis": 1, "workspace memory": 1 });
  });

  it("for a key that it holds: nobody", async () => {
    const [other] = replicas.others;
    const shared = await createShared(replicas.app, replicas.redis);
    expect(await askBoth(replicas.others, shared.key)).toEqual(outcomes.served);
    const calls = async () => {
      for (let count = 0; count < 20; count++) await listKeys(other, shared.key);
    };
    const found = lookups(other, async () => expect(await questions(shared, calls)).toEqual([]));
    expect(await found).toEqual({ "key memory": 20, "workspace memory": 20 });
  });

  it("for a key that it holds, of a workspace that has changed: Redis once", async () => {
    const [other] = replicas.others;
    const shared = await createShared(replicas.app, replicas.redis);
    await listKeys(other, shared.key);
    await disable(replicas.app, shared.workspaceId);
    await listKeys(replicas.app, shared.key);
    await expect.poll(() => replicas.redis.get(workspaceEntryOf(shared.workspaceId))).toMatch(/\.disabled@/);
    const found = lookups(other, async () => {
      const entry = workspaceEntryOf(shared.workspaceId);
      expect(await questions(shared, () => listKeys(other, shared.key))).toEqual([`get ${entry}`]);
    });
    expect(await found).toEqual({ "key memory": 1, "workspace redis": 1 });
    expect(await askBoth(replicas.others, shared.key)).toEqual(outcomes.workspaceDisabled);
  });

  it("for a key whose entries are lost: Postgres, whose answer it leaves in Redis", async () => {
    const [other] = replicas.others;
    const { workspaceId, key } = await createShared(replicas.app, replicas.redis);
    await replicas.redis.del(workspaceEntryOf(workspaceId), keyEntryOf(key));
    expect(await lookups(other, () => listKeys(other, key))).toMatchObject({ "key postgres": 1 });
    await expect.poll(() => replicas.redis.exists(workspaceEntryOf(workspaceId), keyEntryOf(key))).toBe(2);
  });
});
