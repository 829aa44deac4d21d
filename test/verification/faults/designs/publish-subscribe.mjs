// A cache in the process, and a Redis message to all replicas on each change, on which they clear their caches. Broken,
// because a message takes time, and does not reach a replica that has lost its connection to Redis.
import { Redis } from "ioredis";

const channel = "latchkey:changed";

export function createKeyCache(_lease, _changes, _cache, sources) {
  const cached = new Map();
  const publisher = connect();
  const subscriber = connect();
  subscriber.on("message", () => cached.clear());
  // Messages may have been missed while the connection was lost.
  subscriber.on("ready", () => {
    cached.clear();
    subscriber.subscribe(channel).catch(() => {});
  });

  async function publishChange() {
    cached.clear();
    await publisher.publish(channel, "").catch(() => {});
  }

  async function find(hash) {
    const key = cached.get(hash) ?? (await sources.readKeyRecord(hash));
    if (key === undefined) return undefined;
    cached.set(hash, key);
    return { key, workspaceEnabled: key.workspaceEnabled };
  }

  return {
    peek: () => undefined,
    recheck: find,
    readThrough: async (hash) => {
      const key = await sources.readKeyRecord(hash);
      return key && { key, workspaceEnabled: key.workspaceEnabled };
    },
    get: find,
    ensureLease: async () => {},
    awaitPropagation: publishChange,
    awaitEarlierChanges: publishChange,
    awaitDurability: async () => {},
    confirm: () => {},
    knownTimeline: () => "",
  };
}

function connect() {
  const redis = new Redis(process.env.REDIS_URL, { commandTimeout: 50, enableOfflineQueue: false });
  redis.on("error", () => {}); // this design accepts that Redis may be unavailable
  return redis;
}
