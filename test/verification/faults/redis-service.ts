import { setTimeout as sleep } from "node:timers/promises";
import type { Random } from "./random.js";
import { createRedisMemory } from "./redis-memory.js";
import { type RedisServer, startRedis } from "./redis-server.js";

/** The Redis of all replicas, and what can befall it as a whole. */
export interface RedisService {
  readonly url: string;
  freeze(): void;
  thaw(): void;
  /** Forgets everything. */
  empty(): Promise<void>;
  /** Forgets some entries, as a server does that runs out of memory. */
  evict(share: number, random: Random): Promise<void>;
  /** Writes entries of the past over those of the present, once. */
  replay(random: Random): Promise<void>;
  /** Puts an empty server in its place. */
  restart(): Promise<void>;
  /** Puts a server in its place that holds what it held some time ago. */
  failOver(staleByMs: number): Promise<void>;
  /** Ends it. Resolves to how to start it again with what it held so long before that, as from a snapshot on disk. */
  lose(staleByMs: number): Promise<() => Promise<void>>;
  close(): Promise<void>;
}

const lookEveryMs = 400;

/** Starts it. `moved` is told the address whenever another server has taken the place of the last one. */
export async function openRedisService(moved: (url: string) => void): Promise<RedisService> {
  let server = await startRedis();
  const memory = createRedisMemory();
  let closed = false;
  const looking = look();

  async function look(): Promise<void> {
    while (!closed) {
      await memory.look(server.admin);
      await sleep(lookEveryMs);
    }
  }

  async function replaceBy(next: RedisServer): Promise<void> {
    const last = server;
    server = next;
    moved(next.url);
    await last.kill();
  }

  /** A server that holds what there was at that moment. */
  async function startAsOf(at: number): Promise<RedisServer> {
    const copy = await startRedis();
    await memory.restoreAsOf(at, copy.admin);
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
    replay: (random) => memory.replay(server.admin, random),
    async restart() {
      await server.kill();
      await replaceBy(await startRedis());
    },
    async failOver(staleByMs) {
      await replaceBy(await startAsOf(performance.now() - staleByMs));
    },
    async lose(staleByMs) {
      const savedAt = performance.now() - staleByMs;
      await server.kill();
      return async () => replaceBy(await startAsOf(savedAt));
    },
    async close() {
      closed = true;
      await server.kill();
      await looking;
    },
  };
}
