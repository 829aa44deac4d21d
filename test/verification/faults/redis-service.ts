import { setTimeout as sleep } from "node:timers/promises";
import type { Random } from "./random.js";
import { createRedisRecorder } from "./redis-memory.js";
import { type RedisServer, startRedis } from "./redis-server.js";

/** The Redis that all replicas share, and its faults. */
export interface RedisService {
  readonly url: string;
  freeze(): void;
  thaw(): void;
  /** Deletes all entries. */
  empty(): Promise<void>;
  /** Deletes some entries, like a server that runs out of memory. */
  evict(share: number, random: Random): Promise<void>;
  /** Overwrites current entries with earlier versions, once. */
  replay(random: Random): Promise<void>;
  /** Replaces it by an empty server. */
  restart(): Promise<void>;
  /** Replaces it by a server with the entries of some time ago. */
  failOver(staleByMs: number): Promise<void>;
  /** Kills it. Resolves to a function that restarts it with the entries of so long before, like a snapshot on disk. */
  killAndRestore(staleByMs: number): Promise<() => Promise<void>>;
  close(): Promise<void>;
}

const recordIntervalMs = 400;

/** @param onReplaced called with the new address whenever another server replaces the current one */
export async function openRedisService(onReplaced: (url: string) => void): Promise<RedisService> {
  let server = await startRedis();
  const recorder = createRedisRecorder();
  let closed = false;
  const recording = record();

  async function record(): Promise<void> {
    while (!closed) {
      await recorder.record(server.admin);
      await sleep(recordIntervalMs);
    }
  }

  async function replaceBy(next: RedisServer): Promise<void> {
    const last = server;
    server = next;
    onReplaced(next.url);
    await last.kill();
  }

  /** Starts a server with the entries of that moment. */
  async function startFromSnapshot(at: number): Promise<RedisServer> {
    const copy = await startRedis();
    await recorder.restoreAt(at, copy.admin);
    return copy;
  }

  return {
    get url() {
      return server.url;
    },
    freeze: () => server.freeze(),
    thaw: () => server.thaw(),
    async empty() {
      await server.admin.flushall();
    },
    async evict(share, random) {
      const names = await server.admin.keys("*");
      const evicted = names.filter(() => random.chance(share));
      if (evicted.length > 0) await server.admin.del(evicted);
    },
    replay: (random) => recorder.replay(server.admin, random),
    async restart() {
      await server.kill();
      await replaceBy(await startRedis());
    },
    async failOver(staleByMs) {
      await replaceBy(await startFromSnapshot(performance.now() - staleByMs));
    },
    async killAndRestore(staleByMs) {
      const savedAt = performance.now() - staleByMs;
      await server.kill();
      return async () => replaceBy(await startFromSnapshot(savedAt));
    },
    async close() {
      closed = true;
      await server.kill();
      await recording;
    },
  };
}
