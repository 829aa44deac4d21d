import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import type { Sql } from "../../../src/storage/postgres/connection.js";
import { createPool, type PooledConnection } from "../../../src/storage/postgres/pool.js";
import { fairRules, type Origin, type PoolRules } from "../../../src/storage/postgres/shares.js";

beforeEach(() => void vi.useFakeTimers({ toFake: ["performance"] }));
afterEach(() => void vi.useRealTimers());

/**
 * A pool of connections that are never used, in an otherwise idle process. It records which statement acquired which
 * connection.
 */
function openPool(size: number, rules?: PoolRules) {
  const connections = Array.from({ length: size }, () => ({}) as Sql);
  const acquisitions: { name: string; connection: PooledConnection }[] = [];
  const pool = createPool(connections, rules, () => performance.now());
  return {
    pool,
    acquire: (name: string, origin?: Origin) =>
      pool.acquire({ origin, onAcquired: (connection) => acquisitions.push({ name, connection }) }),
    connectionOf: (name: string) => acquisitions.find((each) => each.name === name)?.connection as PooledConnection,
    acquired: () => acquisitions.map(({ name }) => name),
  };
}

test("a statement acquires a free connection while there is one, and is pipelined after that", () => {
  const { pool, acquire, connectionOf, acquired } = openPool(2);
  for (const name of ["first", "second", "third"]) acquire(name);
  expect(acquired()).toEqual(["first", "second", "third"]);
  expect(connectionOf("first")).not.toBe(connectionOf("second"));
  expect(pool.usage()).toMatchObject({ busy: 2, free: 0, waiting: { ordinary: 1 } });
});

test("no statement is pipelined behind a slow one", () => {
  const { pool, acquire, connectionOf, acquired } = openPool(2);
  acquire("slow");
  vi.advanceTimersByTime(30);
  acquire("quick");
  acquire("pipelined");
  expect(connectionOf("pipelined")).toBe(connectionOf("quick"));

  vi.advanceTimersByTime(30);
  acquire("waits");
  expect(acquired()).not.toContain("waits");
  expect(pool.usage()).toMatchObject({ busy: 2, free: 0, waiting: { ordinary: 2 } });
});

test("waiters acquire first in, first out, before later arrivals", () => {
  const { pool, acquire, connectionOf, acquired } = openPool(1);
  acquire("slow");
  vi.advanceTimersByTime(30);
  for (const name of ["waits", "waits longer"]) acquire(name);
  acquire("arrives later");
  expect(acquired()).toEqual(["slow"]);

  pool.release(connectionOf("slow"));
  expect(acquired(), "a connection that has made progress is pipelined on again").toEqual([
    "slow",
    "waits",
    "waits longer",
    "arrives later",
  ]);
});

test("slow statements are not pipelined: a statement waits in the acquire queue, where it can still be shed", () => {
  const { pool, acquire, connectionOf, acquired } = openPool(1);
  for (let round = 0; round < 20; round++) {
    acquire(`slow ${round}`);
    vi.advanceTimersByTime(25);
    pool.release(connectionOf(`slow ${round}`));
  }
  acquire("first");
  acquire("second");
  expect(acquired()).toContain("first");
  expect(acquired()).not.toContain("second");
});

test("a cancelled waiter does not acquire", () => {
  const { pool, acquired } = openPool(1);
  const cancelled = {
    onAcquired() {
      throw new Error("was cancelled");
    },
  };
  let first: PooledConnection | undefined;
  pool.acquire({
    onAcquired(connection) {
      first = connection;
    },
  });
  vi.advanceTimersByTime(30);
  pool.acquire(cancelled);
  expect(pool.cancel(cancelled)).toBe(true);
  pool.release(first as unknown as PooledConnection);
  expect(pool.cancel(cancelled), "it no longer waits").toBe(false);
  expect(acquired()).toEqual([]);
});

describe("a pool of ten connections", () => {
  const of = (account: string, name: Origin["class"] = "ordinary"): Origin => ({ class: name, account });
  const makeSlow = () => void vi.advanceTimersByTime(30);

  /** Acquires as many connections as possible for an account, with slow statements. */
  function occupy({ acquire }: ReturnType<typeof openPool>, origin: Origin): void {
    for (let index = 0; index < 20; index++) {
      acquire(`${origin.account} ${index}`, origin);
      makeSlow();
    }
  }

  test("tenant isolation: one workspace uses at most three, and two more for revocations", () => {
    const opened = openPool(10, fairRules);
    occupy(opened, of("attacker"));
    expect(opened.pool.usage()).toMatchObject({ busy: 3, waiting: { ordinary: 17 } });
    occupy(opened, of("attacker", "revocation"));
    expect(opened.pool.usage()).toMatchObject({ busy: 5, waiting: { ordinary: 17, revocation: 18 } });
  });

  test("one each is reserved for lookups, revocations and the operator, however many workspaces compete", () => {
    const opened = openPool(10, fairRules);
    for (const account of ["a", "b", "c", "d"]) occupy(opened, of(account));
    expect(opened.pool.usage()).toMatchObject({ busy: 7, free: 3 });
    const { acquire, acquired } = opened;
    acquire("lookup", of("strangers", "lookup"));
    acquire("second lookup", of("another", "lookup"));
    acquire("revocation", of("other", "revocation"));
    acquire("second revocation", of("another", "revocation"));
    acquire("operator", of("others", "operator"));
    expect(acquired().slice(-3)).toEqual(["lookup", "revocation", "operator"]);
  });

  test("one is reserved for ordinary statements, however many revocations there are", () => {
    const opened = openPool(10, fairRules);
    for (const account of ["a", "b", "c", "d", "e"]) occupy(opened, of(account, "revocation"));
    expect(opened.pool.usage()).toMatchObject({ busy: 7, free: 3 });
    opened.acquire("ordinary", of("other"));
    expect(opened.acquired()).toContain("ordinary");
  });

  // So no statement waits behind one of another workspace.
  test("tenant isolation: no connection has statements of two workspaces in flight", () => {
    const { acquire, connectionOf } = openPool(10, fairRules);
    for (const name of ["a", "b"]) for (let index = 0; index < 6; index++) acquire(`${name}${index}`, of(name));
    const connectionsOf = (name: string) => new Set([0, 1, 2, 3, 4, 5].map((index) => connectionOf(`${name}${index}`)));
    expect(connectionsOf("a").size).toBe(3);
    expect([...connectionsOf("a")].filter((connection) => connectionsOf("b").has(connection))).toEqual([]);
  });

  test("a revocation is never pipelined behind another statement", () => {
    const { acquire, connectionOf, acquired, pool } = openPool(10, fairRules);
    for (const name of ["first", "second", "third"]) acquire(name, of("other", "revocation"));
    expect(acquired()).toEqual(["first", "second"]);
    expect(connectionOf("first")).not.toBe(connectionOf("second"));
    pool.release(connectionOf("first"));
    expect(acquired()).toEqual(["first", "second", "third"]);
  });
});

describe("workspaces that wait for a connection", () => {
  const rules: PoolRules = { ...fairRules, ordinary: { reserved: 0, share: 1, pipelined: true } };
  const none = { reserved: 0, share: 1, pipelined: false };
  const openSingle = () => openPool(1, { ...rules, revocation: none, operator: none, lookup: none });
  const of = (account: string, flow?: object): Origin => ({ class: "ordinary", account, flow });

  test("take turns, however many statements one of them has; each turn pipelines as many as fit", () => {
    const { pool, acquire, connectionOf, acquired } = openSingle();
    acquire("slow", of("attacker"));
    vi.advanceTimersByTime(30);
    for (let index = 0; index < 40; index++) acquire(`attacker ${index}`, of("attacker"));
    for (const name of ["b", "c"]) acquire(name, of(name));
    pool.release(connectionOf("slow"));
    // The attacker waited first.
    const sent = acquired().length - 1;
    expect(sent).toBeGreaterThan(1);
    expect(sent).toBeLessThanOrEqual(16);
    for (let index = 0; index < sent; index++) pool.release(connectionOf(`attacker ${index}`));
    expect(acquired().slice(1 + sent)).toEqual(["b"]);
    pool.release(connectionOf("b"));
    expect(acquired().slice(1 + sent)).toEqual(["b", "c"]);
    pool.release(connectionOf("c"));
    expect(acquired()[3 + sent]).toBe(`attacker ${sent}`);
  });

  test("get the connection of a busy workspace: while others wait, it pipelines nothing more there", () => {
    const { pool, acquire, connectionOf, acquired } = openSingle();
    for (let index = 0; index < 5; index++) acquire(`busy ${index}`, of("busy"));
    acquire("other", of("other"));
    acquire("busy 5", of("busy"));
    for (let index = 0; index < 5; index++) pool.release(connectionOf(`busy ${index}`));
    expect(acquired().slice(5)).toEqual(["other"]);
  });

  test("serve the connections of their clients in turn", () => {
    const { pool, acquire, connectionOf, acquired } = openPool(1, {
      ...fairRules,
      revocation: none,
      operator: none,
      lookup: none,
      ordinary: none,
    });
    const [one, other] = [{}, {}];
    acquire("first", of("strangers", one));
    for (let index = 0; index < 3; index++) acquire(`one ${index}`, of("strangers", one));
    acquire("other", of("strangers", other));
    for (const name of ["first", "one 0", "other"]) pool.release(connectionOf(name));
    expect(acquired()).toEqual(["first", "one 0", "other", "one 1"]);
  });
});

test("statements in flight on replaced connections no longer count in the share of their account", () => {
  const { pool, acquire, connectionOf } = openPool(10, fairRules);
  const origin: Origin = { class: "ordinary", account: "a" };
  for (let index = 0; index < 3; index++) {
    acquire(`${index}`, origin);
    vi.advanceTimersByTime(30);
  }
  acquire("waits", origin);
  pool.replace(Array.from({ length: 10 }, () => ({}) as Sql));
  expect(pool.usage()).toMatchObject({ busy: 1, free: 9 });
  for (let index = 0; index < 3; index++) pool.release(connectionOf(`${index}`));
  expect(pool.usage()).toMatchObject({ busy: 1, free: 9 });
  pool.release(connectionOf("waits"));
  expect(pool.usage()).toMatchObject({ busy: 0, free: 10 });
});

test("a busy process does not count a statement as slow while it has not read the response", () => {
  const pool = createPool([{} as Sql], undefined, () => 0);
  const acquired: PooledConnection[] = [];
  const acquire = () => pool.acquire({ onAcquired: (connection) => acquired.push(connection) });
  for (let round = 0; round < 20; round++) {
    acquire();
    vi.advanceTimersByTime(25);
    pool.release(acquired.at(-1) as PooledConnection);
  }
  acquire();
  acquire();
  expect(acquired.length).toBe(22);
});
