import { beforeEach, describe, expect, it } from "vitest";
import { type ChangeLog, createChangeLog, type Versioned } from "../../../src/revocation/change-log.js";
import { heapSizeOf } from "../../../src/revocation/heap-size.js";
import { type EntryCodec, workspaceEntries } from "../../../src/revocation/signed-entry.js";
import { snapshotBefore } from "../../../src/revocation/snapshot.js";
import { createTieredCache, type TieredCache } from "../../../src/revocation/tiered-cache.js";
import { noCache } from "../../../src/storage/redis/client.js";
import { createRandom } from "../../verification/faults/random.js";

const form = workspaceEntries(() => "a secret");
/** Sees the transactions up to this one. */
const upTo = (xid: number) => snapshotBefore(xid + 1);
const fact = (id: string, value: boolean, xid: number): Versioned<boolean> => ({
  value,
  dependsOn: [id],
  workspaceId: id,
  snapshot: upTo(xid),
});

/** A read of Postgres that is under way. */
interface Read {
  readonly id: string;
  answer(fact: Versioned<boolean> | undefined): void;
}

let changes: ChangeLog;
let reads: Read[];
let redis: Map<string, string>;
let shelf: TieredCache<boolean>;

beforeEach(() => {
  changes = createChangeLog(upTo(0), "first");
  reads = [];
  redis = new Map();
  const cache = {
    ...noCache,
    get: async (name: string) => redis.get(name),
    set: async (name: string, value: string) => void redis.set(name, value),
  };
  const read = (id: string) => new Promise<Versioned<boolean> | undefined>((answer) => reads.push({ id, answer }));
  shelf = createTieredCache({ form, changes, cache, read, capacity: 1_000_000, sizeOf: heapSizeOf });
});

/** The next read of Postgres, once it has begun. */
async function nextRead(count: number): Promise<Read> {
  await expect.poll(() => reads.length, { interval: 1 }).toBe(count);
  return reads[count - 1] ?? expect.fail("no read");
}

/** Lets all that can go on go on. */
const settle = () => new Promise((resolve) => setTimeout(resolve, 5));

describe("callers who want the same at the same time", () => {
  it("share one read of Postgres", async () => {
    const callers = Array.from({ length: 100 }, () => shelf.load("a", "redis"));
    (await nextRead(1)).answer(fact("a", true, 0));
    expect(await Promise.all(callers)).toEqual(callers.map(() => true));
    await settle();
    expect(reads).toHaveLength(1);
  });

  it("share its failure, and the next caller asks anew", async () => {
    const failing = createTieredCache({
      form,
      changes,
      cache: noCache,
      read: async () => {
        if (reads.push({ id: "a", answer: () => {} }) === 1) throw new Error("away");
        return fact("a", true, 0);
      },
      sizeOf: heapSizeOf,
      capacity: 1_000_000,
    });
    const [one, other] = await Promise.allSettled([failing.load("a", "redis"), failing.load("a", "redis")]);
    expect([one?.status, other?.status]).toEqual(["rejected", "rejected"]);
    expect(await failing.load("a", "redis")).toBe(true);
  });

  it("are refused at once when more than enough is wanted already, until some of that has come", async () => {
    const many = Array.from({ length: 10_000 }, (_, number) => shelf.load(`${number}`, "postgres"));
    await expect(shelf.load("a", "postgres")).rejects.toThrow(/cannot reach its database/);
    for (const { id, answer } of reads.splice(0)) answer(fact(id, true, 0));
    expect(new Set(await Promise.all(many))).toEqual(new Set([true]));
    const call = shelf.load("a", "postgres");
    (await nextRead(1)).answer(fact("a", true, 0));
    expect(await call).toBe(true);
  });

  it("do not share with those who want something else", async () => {
    const both = Promise.all([shelf.load("a", "redis"), shelf.load("b", "redis")]);
    await nextRead(2);
    for (const { id, answer } of reads) answer(fact(id, id === "a", 0));
    expect(await both).toEqual([true, false]);
  });
});

describe("a read that began before the call", () => {
  it("is not believed if a change is known since", async () => {
    const early = shelf.load("a", "postgres");
    const slow = await nextRead(1);
    changes.append(upTo(1), [{ id: "a", xid: 1 }]);
    const late = shelf.load("a", "postgres");
    slow.answer(fact("a", true, 0));
    (await nextRead(2)).answer(fact("a", false, 1));
    expect(await Promise.all([early, late])).toEqual([false, false]);
    expect(shelf.peek("a")).toBe(false);
  });

  it("is believed if the change is of something else", async () => {
    const early = shelf.load("a", "postgres");
    const slow = await nextRead(1);
    changes.append(upTo(1), [{ id: "b", xid: 1 }]);
    const late = shelf.load("a", "postgres");
    slow.answer(fact("a", true, 0));
    expect(await Promise.all([early, late])).toEqual([true, true]);
    expect(reads).toHaveLength(1);
  });

  it("that found nothing is asked again: what was created meanwhile is found", async () => {
    const early = shelf.load("a", "postgres");
    const slow = await nextRead(1);
    const late = shelf.load("a", "postgres");
    slow.answer(undefined);
    expect(await early).toBeUndefined();
    (await nextRead(2)).answer(fact("a", true, 0));
    expect(await late).toBe(true);
  });

  it("is asked again once, not for ever, where there is nothing", async () => {
    const early = shelf.load("a", "postgres");
    const slow = await nextRead(1);
    const late = [shelf.load("a", "postgres"), shelf.load("a", "postgres")];
    slow.answer(undefined);
    (await nextRead(2)).answer(undefined);
    expect(await Promise.all([early, ...late])).toEqual([undefined, undefined, undefined]);
    expect(reads).toHaveLength(2);
  });

  it("is given up as unavailable when Postgres only ever answers with what is too old", async () => {
    changes.append(upTo(1), [{ id: "a", xid: 1 }]);
    const call = shelf.load("a", "postgres");
    const answering = setInterval(() => reads.splice(0).forEach(({ answer }) => void answer(fact("a", true, 0))), 1);
    await expect(call).rejects.toThrow(/cannot reach its database/);
    clearInterval(answering);
    expect(shelf.peek("a")).toBeUndefined();
  });
});

describe("what is in Redis", () => {
  it("is used without a read of Postgres, and then held", async () => {
    redis.set(form.keyOf("a"), form.sign("a", fact("a", true, 0)));
    expect(await shelf.load("a", "redis")).toBe(true);
    expect(shelf.peek("a")).toBe(true);
    expect(shelf.lookups).toEqual({ memory: 0, redis: 1, postgres: 0 }); // that it was held, its user counts
  });

  it.each([
    ["older than a known change", fact("a", true, 0)],
    ["from a future that is not known here", fact("a", true, 2)],
  ])("is not used if it is %s", async (_what, entry) => {
    changes.append(upTo(1), [{ id: "a", xid: 1 }]);
    redis.set(form.keyOf("a"), form.sign("a", entry));
    const call = shelf.load("a", "redis");
    (await nextRead(1)).answer(fact("a", false, 1));
    expect(await call).toBe(false);
  });

  it("is not used if a change becomes known while Redis answers", async () => {
    redis.set(form.keyOf("a"), form.sign("a", fact("a", true, 0)));
    const call = shelf.load("a", "redis");
    changes.append(upTo(1), [{ id: "a", xid: 1 }]);
    (await nextRead(1)).answer(fact("a", false, 1));
    expect(await call).toBe(false);
  });
});

describe("what is held", () => {
  it("is let go when everything was forgotten", async () => {
    shelf.put("a", fact("a", true, 0));
    changes.reset(upTo(0), "second");
    expect(shelf.peek("a")).toBeUndefined();
  });

  it("is bounded: the longest unused goes first", async () => {
    const capacity = 50_000;
    const source = async (id: string) => {
      reads.push({ id, answer: () => {} });
      return fact(id, true, 0);
    };
    const small = createTieredCache({ form, changes, cache: noCache, read: source, capacity, sizeOf: heapSizeOf });
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

describe("changes that are about to be forgotten", () => {
  const mostRemembered = 30;
  let xid: number;
  /** Changes of other workspaces, one at a time, with what happens after each. */
  const learnMany = async (count: number, shelf: TieredCache<boolean>) => {
    for (let learnt = 0; learnt < count; learnt++) {
      xid += 1;
      changes.append(upTo(xid), [{ id: `other ${xid}`, xid }]);
      shelf.confirm();
    }
  };
  beforeEach(() => {
    xid = 0;
    changes = createChangeLog(upTo(0), "first", mostRemembered);
  });

  it("cost nobody what is held: it is confirmed before, and what has changed is not", async () => {
    const read = async (id: string) => fact(id, true, xid);
    const small = createTieredCache({ form, changes, cache: noCache, read, capacity: 1_000_000, sizeOf: heapSizeOf });
    const ids = Array.from({ length: 100 }, (_, index) => `workspace ${index}`);
    for (const id of ids) await small.load(id, "postgres");
    await learnMany(10 * mostRemembered, small);
    changes.append(upTo(xid), [{ id: "workspace 7", xid }]);
    await learnMany(10 * mostRemembered, small);
    expect(ids.filter((id) => small.peek(id) === undefined)).toEqual(["workspace 7"]);
    expect(small.lookups.postgres).toBe(ids.length);
  });

  it("are looked for in time in all that is held, while any of it changes and is looked up again", async () => {
    const facts = 10_000;
    const random = createRandom(1);
    const anyId = () => `workspace ${Math.floor(random.between(0, facts))}`;
    changes = createChangeLog(upTo(0), "first", facts / 10);
    const read = async (id: string) => fact(id, true, xid);
    const shelf = createTieredCache({ form, changes, cache: noCache, read, capacity: 100_000_000, sizeOf: heapSizeOf });
    for (let index = 0; index < facts; index++) await shelf.load(`workspace ${index}`, "postgres");
    const before = shelf.lookups.postgres;
    const lookupsPerChange = 5;
    for (xid = 1; xid <= facts; xid++) {
      changes.append(upTo(xid), [{ id: anyId(), xid }]);
      shelf.confirm();
      for (let lookup = 0; lookup < lookupsPerChange; lookup++) {
        const id = anyId();
        if (shelf.peek(id) === undefined) await shelf.load(id, "postgres");
      }
    }
    // A fact that has changed is read again, and only that: one lookup in six. Half of them are not used for long enough to
    // be forgotten, if nobody looks for them.
    const share = (shelf.lookups.postgres - before) / (facts * lookupsPerChange);
    expect(share).toBeLessThan(1 / (lookupsPerChange + 1));
  });

  it("make Redis be told again of what it gave back, as of the present", async () => {
    const cache = {
      ...noCache,
      get: async (name: string) => redis.get(name),
      set: async (name: string, value: string) => void redis.set(name, value),
    };
    const read = async (id: string) => fact(id, true, xid);
    const open = () => createTieredCache({ form, changes, cache, read, capacity: 1_000_000, sizeOf: heapSizeOf });
    await open().load("a", "postgres");
    for (let window = 0; window < 10; window++) {
      await learnMany(0.8 * mostRemembered, open());
      // Another replica, which holds nothing yet.
      const other = open();
      await other.load("a", "redis");
      expect(other.lookups).toMatchObject({ redis: 1, postgres: 0 });
    }
  });
});

it("an entry is not written again as of the present if its workspace has changed: a key's tells the state of that, too", async () => {
  changes = createChangeLog(upTo(0), "first", 4);
  const ofKey: EntryCodec<boolean> = {
    keyOf: (id) => id,
    sign: (_id, { snapshot: asOf }) => `${asOf.xmax}`,
    verify: (id, entry) =>
      entry === undefined
        ? undefined
        : { value: true, dependsOn: [id], workspaceId: "ws", snapshot: snapshotBefore(Number(entry)) },
  };
  const entries = new Map([["key", "1"]]);
  const cache = {
    ...noCache,
    get: async (name: string) => entries.get(name),
    set: async (name: string, value: string) => void entries.set(name, value),
  };
  const open = () =>
    createTieredCache({
      form: ofKey,
      changes,
      cache,
      read: async () => undefined,
      capacity: 1_000_000,
      sizeOf: heapSizeOf,
    });
  changes.append(upTo(1), [{ id: "ws", xid: 1 }]);
  changes.append(upTo(2), [{ id: "other", xid: 2 }]);
  expect(changes.isAging(upTo(0))).toBe(true);
  expect(await open().load("key", "redis")).toBe(true);
  expect(entries.get("key")).toBe("1");
  // Read after that change, it is written again as soon as it is old.
  entries.set("key", "2");
  expect(await open().load("key", "redis")).toBe(true);
  expect(entries.get("key")).toBe("3");
});

it("a read that began before everything was forgotten is not held, however new it claims to be", async () => {
  changes.append(upTo(5), []);
  const call = shelf.load("a", "postgres");
  const slow = await nextRead(1);
  // Another server has taken over, and knows less.
  changes.reset(upTo(3), "second");
  expect(shelf.peek("a")).toBeUndefined();
  slow.answer(fact("a", true, 5));
  await settle();
  reads[1]?.answer(fact("a", true, 3));
  await call;
  changes.append(upTo(4), [{ id: "a", xid: 4 }]);
  expect(shelf.peek("a")).toBeUndefined();
});
