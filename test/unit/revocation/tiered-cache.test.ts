import { beforeEach, describe, expect, it } from "vitest";
import { type ChangeLog, createChangeLog, type Versioned } from "../../../src/revocation/change-log.js";
import { heapSizeOf } from "../../../src/revocation/heap-size.js";
import { type EntryCodec, workspaceEntries } from "../../../src/revocation/signed-entry.js";
import { snapshotBefore } from "../../../src/revocation/snapshot.js";
import { createTieredCache, type TieredCache } from "../../../src/revocation/tiered-cache.js";
import { noCache } from "../../../src/storage/redis/client.js";
import { createRandom } from "../../verification/faults/random.js";

const states = workspaceEntries(() => "a secret");
/** Entries that contain a boolean, as those of a workspace without imports do. */
const codec: EntryCodec<boolean> = {
  keyOf: states.keyOf,
  sign: (id, entry) => states.sign(id, { ...entry, value: { enabled: entry.value, hasImports: false } }),
  verify(id, text) {
    const entry = states.verify(id, text);
    return entry && { ...entry, value: entry.value.enabled };
  },
};
/** Includes the transactions up to this one. */
const upTo = (xid: number) => snapshotBefore(xid + 1);
const versioned = (id: string, value: boolean, xid: number): Versioned<boolean> => ({
  value,
  dependsOn: [id],
  workspaceId: id,
  snapshot: upTo(xid),
});

/** A read of PostgreSQL in flight. */
interface Read {
  readonly id: string;
  resolve(versioned: Versioned<boolean> | undefined): void;
}

let changeLog: ChangeLog;
let reads: Read[];
let redis: Map<string, string>;
let cache: TieredCache<boolean>;

beforeEach(() => {
  changeLog = createChangeLog(upTo(0), "first");
  reads = [];
  redis = new Map();
  const redisClient = {
    ...noCache,
    get: async (name: string) => redis.get(name),
    set: async (name: string, value: string) => void redis.set(name, value),
  };
  const read = (id: string) => new Promise<Versioned<boolean> | undefined>((resolve) => reads.push({ id, resolve }));
  cache = createTieredCache({ codec, changeLog, cache: redisClient, read, capacity: 1_000_000, sizeOf: heapSizeOf });
});

/** The next read of PostgreSQL, once it has begun. */
async function nextRead(count: number): Promise<Read> {
  await expect.poll(() => reads.length, { interval: 1 }).toBe(count);
  return reads[count - 1] ?? expect.fail("no read");
}

/** Waits until all pending promises have settled. */
const settle = () => new Promise((resolve) => setTimeout(resolve, 5));

describe("concurrent lookups of the same value", () => {
  it("share one read of PostgreSQL", async () => {
    const callers = Array.from({ length: 100 }, () => cache.load("a", "redis"));
    (await nextRead(1)).resolve(versioned("a", true, 0));
    expect(await Promise.all(callers)).toEqual(callers.map(() => true));
    await settle();
    expect(reads).toHaveLength(1);
  });

  it("share its failure, and the next lookup reads again", async () => {
    const failing = createTieredCache({
      codec,
      changeLog,
      cache: noCache,
      read: async () => {
        if (reads.push({ id: "a", resolve: () => {} }) === 1) throw new Error("unavailable");
        return versioned("a", true, 0);
      },
      sizeOf: heapSizeOf,
      capacity: 1_000_000,
    });
    const [one, other] = await Promise.allSettled([failing.load("a", "redis"), failing.load("a", "redis")]);
    expect([one?.status, other?.status]).toEqual(["rejected", "rejected"]);
    expect(await failing.load("a", "redis")).toBe(true);
  });

  it("are refused at once while the maximum number of fetches is in flight, and served again afterwards", async () => {
    const many = Array.from({ length: 10_000 }, (_, number) => cache.load(`${number}`, "postgres"));
    await expect(cache.load("a", "postgres")).rejects.toThrow(/cannot reach its database/);
    for (const { id, resolve } of reads.splice(0)) resolve(versioned(id, true, 0));
    expect(new Set(await Promise.all(many))).toEqual(new Set([true]));
    const call = cache.load("a", "postgres");
    (await nextRead(1)).resolve(versioned("a", true, 0));
    expect(await call).toBe(true);
  });

  it("do not share a read with lookups of other values", async () => {
    const both = Promise.all([cache.load("a", "redis"), cache.load("b", "redis")]);
    await nextRead(2);
    for (const { id, resolve } of reads) resolve(versioned(id, id === "a", 0));
    expect(await both).toEqual([true, false]);
  });
});

describe("a read in flight that began before the call", () => {
  it("is not used if a change of its row became known since", async () => {
    const early = cache.load("a", "postgres");
    const slow = await nextRead(1);
    changeLog.append(upTo(1), [{ id: "a", xid: 1 }]);
    const late = cache.load("a", "postgres");
    slow.resolve(versioned("a", true, 0));
    (await nextRead(2)).resolve(versioned("a", false, 1));
    expect(await Promise.all([early, late])).toEqual([false, false]);
    expect(cache.peek("a")).toBe(false);
  });

  it("is used if the change is of another row", async () => {
    const early = cache.load("a", "postgres");
    const slow = await nextRead(1);
    changeLog.append(upTo(1), [{ id: "b", xid: 1 }]);
    const late = cache.load("a", "postgres");
    slow.resolve(versioned("a", true, 0));
    expect(await Promise.all([early, late])).toEqual([true, true]);
    expect(reads).toHaveLength(1);
  });

  it("is repeated if it found nothing, so that a row created meanwhile is found", async () => {
    const early = cache.load("a", "postgres");
    const slow = await nextRead(1);
    const late = cache.load("a", "postgres");
    slow.resolve(undefined);
    expect(await early).toBeUndefined();
    (await nextRead(2)).resolve(versioned("a", true, 0));
    expect(await late).toBe(true);
  });

  it("is repeated only once if there is no row", async () => {
    const early = cache.load("a", "postgres");
    const slow = await nextRead(1);
    const late = [cache.load("a", "postgres"), cache.load("a", "postgres")];
    slow.resolve(undefined);
    (await nextRead(2)).resolve(undefined);
    expect(await Promise.all([early, ...late])).toEqual([undefined, undefined, undefined]);
    expect(reads).toHaveLength(2);
  });

  it("fails as unavailable if PostgreSQL returns only outdated values", async () => {
    changeLog.append(upTo(1), [{ id: "a", xid: 1 }]);
    const call = cache.load("a", "postgres");
    const resolving = setInterval(
      () => reads.splice(0).forEach(({ resolve }) => void resolve(versioned("a", true, 0))),
      1,
    );
    await expect(call).rejects.toThrow(/cannot reach its database/);
    clearInterval(resolving);
    expect(cache.peek("a")).toBeUndefined();
  });
});

describe("an entry in Redis", () => {
  it("is used without a read of PostgreSQL, and then cached in memory", async () => {
    redis.set(codec.keyOf("a"), codec.sign("a", versioned("a", true, 0)));
    expect(await cache.load("a", "redis")).toBe(true);
    expect(cache.peek("a")).toBe(true);
    // Hits in memory are counted by the user of the cache.
    expect(cache.lookups).toEqual({ memory: 0, redis: 1, postgres: 0 });
  });

  it.each([
    ["older than a known change", versioned("a", true, 0)],
    ["from a snapshot that is not known here yet", versioned("a", true, 2)],
  ])("is not used if it is %s", async (_what, entry) => {
    changeLog.append(upTo(1), [{ id: "a", xid: 1 }]);
    redis.set(codec.keyOf("a"), codec.sign("a", entry));
    const call = cache.load("a", "redis");
    (await nextRead(1)).resolve(versioned("a", false, 1));
    expect(await call).toBe(false);
  });

  it("is not used if a change becomes known while Redis is read", async () => {
    redis.set(codec.keyOf("a"), codec.sign("a", versioned("a", true, 0)));
    const call = cache.load("a", "redis");
    changeLog.append(upTo(1), [{ id: "a", xid: 1 }]);
    (await nextRead(1)).resolve(versioned("a", false, 1));
    expect(await call).toBe(false);
  });
});

describe("a value in memory", () => {
  it("is dropped when the timeline changes", async () => {
    cache.put("a", versioned("a", true, 0));
    changeLog.reset(upTo(0), "second");
    expect(cache.peek("a")).toBeUndefined();
  });

  it("is evicted when the cache is full: the least recently used first", async () => {
    const capacity = 50_000;
    const source = async (id: string) => {
      reads.push({ id, resolve: () => {} });
      return versioned(id, true, 0);
    };
    const small = createTieredCache({ codec, changeLog, cache: noCache, read: source, capacity, sizeOf: heapSizeOf });
    const ids = Array.from({ length: 5_000 }, (_, index) => `workspace ${index}`);
    await small.load("often used", "postgres");
    let kept = true;
    for (const id of ids) {
      await small.load(id, "postgres");
      kept &&= small.peek("often used") === true;
    }
    expect(kept).toBe(true);
    const still = ids.filter((id) => small.peek(id));
    expect(still.length).toBeGreaterThan(10);
    expect(still.length).toBeLessThan(capacity / 250);
    expect(still).toEqual(ids.slice(-still.length));
    await small.load("workspace 0", "postgres");
    expect(reads.at(-1)?.id).toBe("workspace 0");
  });
});

describe("before old changes are forgotten", () => {
  const maxRemembered = 30;
  let xid: number;
  /** Appends changes of other workspaces one at a time, and confirms after each. */
  const appendMany = async (count: number, cache: TieredCache<boolean>) => {
    for (let appended = 0; appended < count; appended++) {
      xid += 1;
      changeLog.append(upTo(xid), [{ id: `other ${xid}`, xid }]);
      cache.confirm();
    }
  };
  beforeEach(() => {
    xid = 0;
    changeLog = createChangeLog(upTo(0), "first", maxRemembered);
  });

  it("cached values are confirmed and stay cached, except those that have changed", async () => {
    const read = async (id: string) => versioned(id, true, xid);
    const small = createTieredCache({
      codec,
      changeLog,
      cache: noCache,
      read,
      capacity: 1_000_000,
      sizeOf: heapSizeOf,
    });
    const ids = Array.from({ length: 100 }, (_, index) => `workspace ${index}`);
    for (const id of ids) await small.load(id, "postgres");
    await appendMany(10 * maxRemembered, small);
    changeLog.append(upTo(xid), [{ id: "workspace 7", xid }]);
    await appendMany(10 * maxRemembered, small);
    expect(ids.filter((id) => small.peek(id) === undefined)).toEqual(["workspace 7"]);
    expect(small.lookups.postgres).toBe(ids.length);
  });

  it("every cached value is confirmed in time, while values change and are looked up again", async () => {
    const values = 2_000;
    const random = createRandom(1);
    const anyId = () => `workspace ${Math.floor(random.between(0, values))}`;
    changeLog = createChangeLog(upTo(0), "first", values / 10);
    const read = async (id: string) => versioned(id, true, xid);
    const cache = createTieredCache({
      codec,
      changeLog,
      cache: noCache,
      read,
      capacity: 100_000_000,
      sizeOf: heapSizeOf,
    });
    for (let index = 0; index < values; index++) await cache.load(`workspace ${index}`, "postgres");
    const before = cache.lookups.postgres;
    const lookupsPerChange = 5;
    for (xid = 1; xid <= values; xid++) {
      changeLog.append(upTo(xid), [{ id: anyId(), xid }]);
      cache.confirm();
      for (let lookup = 0; lookup < lookupsPerChange; lookup++) {
        const id = anyId();
        if (cache.peek(id) === undefined) await cache.load(id, "postgres");
      }
    }
    // Only a value that has changed is read again: one lookup in six. Without confirmation, half of the values would be
    // unused for so long that they fall behind the horizon.
    const share = (cache.lookups.postgres - before) / (values * lookupsPerChange);
    expect(share).toBeLessThan(1 / (lookupsPerChange + 1));
  });

  it("an aging entry read from Redis is written again, as of the present", async () => {
    const redisClient = {
      ...noCache,
      get: async (name: string) => redis.get(name),
      set: async (name: string, value: string) => void redis.set(name, value),
    };
    const read = async (id: string) => versioned(id, true, xid);
    const open = () =>
      createTieredCache({ codec, changeLog, cache: redisClient, read, capacity: 1_000_000, sizeOf: heapSizeOf });
    await open().load("a", "postgres");
    for (let window = 0; window < 10; window++) {
      await appendMany(0.8 * maxRemembered, open());
      // Another replica, whose memory is empty.
      const other = open();
      await other.load("a", "redis");
      expect(other.lookups).toMatchObject({ redis: 1, postgres: 0 });
    }
  });
});

it("an aging entry of a key contains its workspace's state: if that has changed, it is not written again", async () => {
  changeLog = createChangeLog(upTo(0), "first", 4);
  const ofKey: EntryCodec<boolean> = {
    keyOf: (id) => id,
    sign: (_id, { snapshot }) => `${snapshot.xmax}`,
    verify: (id, entry) =>
      entry === undefined
        ? undefined
        : { value: true, dependsOn: [id], workspaceId: "ws", snapshot: snapshotBefore(Number(entry)) },
  };
  const entries = new Map([["key", "1"]]);
  const redisClient = {
    ...noCache,
    get: async (name: string) => entries.get(name),
    set: async (name: string, value: string) => void entries.set(name, value),
  };
  const open = () =>
    createTieredCache({
      codec: ofKey,
      changeLog,
      cache: redisClient,
      read: async () => undefined,
      capacity: 1_000_000,
      sizeOf: heapSizeOf,
    });
  changeLog.append(upTo(1), [{ id: "ws", xid: 1 }]);
  changeLog.append(upTo(2), [{ id: "other", xid: 2 }]);
  expect(changeLog.isAging(upTo(0))).toBe(true);
  expect(await open().load("key", "redis")).toBe(true);
  expect(entries.get("key")).toBe("1");
  // An entry that was read after that change is written again when it is aging.
  entries.set("key", "2");
  expect(await open().load("key", "redis")).toBe(true);
  expect(entries.get("key")).toBe("3");
});

it("a read that began before the timeline changed is not cached, whatever snapshot it has", async () => {
  changeLog.append(upTo(5), []);
  const call = cache.load("a", "postgres");
  const slow = await nextRead(1);
  // Another server has taken over, with fewer transactions.
  changeLog.reset(upTo(3), "second");
  expect(cache.peek("a")).toBeUndefined();
  slow.resolve(versioned("a", true, 5));
  await settle();
  reads[1]?.resolve(versioned("a", true, 3));
  await call;
  changeLog.append(upTo(4), [{ id: "a", xid: 4 }]);
  expect(cache.peek("a")).toBeUndefined();
});
