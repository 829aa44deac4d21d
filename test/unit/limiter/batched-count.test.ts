import type { Redis } from "ioredis";
import { expect, it } from "vitest";
import { createBatchedCount } from "../../../src/limiter/batched-count.js";
import type { CounterUse } from "../../../src/limiter/counters.js";
import { noCache, type RedisCache } from "../../../src/storage/redis/client.js";

const use = (key: string): CounterUse => ({ key, limit: 3, durationMs: 60_000, cost: 1 });
const uses = (...keys: string[]) => ({ uses: keys.map(use), mayBegin: true });

/** A Redis that has nothing counted yet, and the keys of each command that it got. */
function fakeRedis({ isCluster = false, fails = false } = {}) {
  const commands: string[][] = [];
  const evalsha = async (_sha1: string, count: number, ...values: string[]) => {
    commands.push(values.slice(0, count));
    const args: number[] = JSON.parse(values[count] ?? "");
    const answer: number[] = [];
    for (let at = 0; at < args.length; ) {
      const uses = args[at] ?? 0;
      answer.push(0, ...Array.from({ length: uses }, () => [0, -2]).flat());
      at += 3 * uses + 2;
    }
    if (fails) throw new Error("connection lost");
    return JSON.stringify(answer);
  };
  const redis: RedisCache = {
    ...noCache,
    isCluster,
    client: { evalsha } as unknown as Redis,
    store: (_operation, run) => run().catch(() => undefined),
  };
  return { count: createBatchedCount(redis), commands };
}

it("the checks of one turn of the event loop are one command, and each gets its own counts", async () => {
  const { count, commands } = fakeRedis();
  const readings = await Promise.all([count(uses("a"), "1"), count(uses("b", "c"), "2")]);
  expect(commands).toEqual([["a", "b", "c"]]);
  const nothing = { used: 0, msLeft: 60_000 };
  expect(readings).toEqual([[nothing], [nothing, nothing]]);
  await count(uses("d"), "1");
  expect(commands).toHaveLength(2);
});

it("a command has a bounded number of counters, and is sent at once when it has that many", async () => {
  const { count, commands } = fakeRedis();
  const check = uses(...Array.from({ length: 30 }, (_, index) => `${index}`));
  const counting = Array.from({ length: 7 }, () => count(check, "1"));
  expect(commands.map((keys) => keys.length)).toEqual([90, 90]);
  const readings = await Promise.all(counting);
  for (const each of readings) expect(each).toHaveLength(30);
  expect(commands.map((keys) => keys.length)).toEqual([90, 90, 30]);
});

it("in a cluster, a command has the counters of one hash tag only", async () => {
  const { count, commands } = fakeRedis({ isCluster: true });
  await Promise.all([count(uses("a"), "1"), count(uses("b"), "2"), count(uses("c"), "1")]);
  expect(commands).toEqual([["a", "c"], ["b"]]);
});

it("if the command fails, none of its checks has a result", async () => {
  const { count } = fakeRedis({ fails: true });
  expect(await Promise.all([count(uses("a"), "1"), count(uses("b"), "2")])).toEqual([undefined, undefined]);
});
