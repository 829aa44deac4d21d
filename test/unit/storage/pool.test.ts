import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import type { Sql } from "../../../src/storage/postgres/connection.js";
import { createPool, type PooledConnection } from "../../../src/storage/postgres/pool.js";
import { fairRules, type Origin, type PoolRules } from "../../../src/storage/postgres/shares.js";

beforeEach(() => void vi.useFakeTimers({ toFake: ["performance"] }));
afterEach(() => void vi.useRealTimers());

/** Lanes over connections that are never used, in a process that has nothing to do but wait, and who got a turn where. */
function openLanes(connections: number, rules?: PoolRules) {
  const pools = Array.from({ length: connections }, () => ({}) as Sql);
  const turns: { who: string; lane: PooledConnection }[] = [];
  const lanes = createPool(pools, rules, () => performance.now());
  return {
    lanes,
    enter: (who: string, origin?: Origin) => lanes.acquire({ origin, onAcquired: (lane) => turns.push({ who, lane }) }),
    laneOf: (who: string) => turns.find((turn) => turn.who === who)?.lane as PooledConnection,
    turns: () => turns.map(({ who }) => who),
  };
}

test("a statement gets a connection to itself while there is one, and shares one after that", () => {
  const { lanes, enter, laneOf, turns } = openLanes(2);
  for (const who of ["first", "second", "third"]) enter(who);
  expect(turns()).toEqual(["first", "second", "third"]);
  expect(laneOf("first")).not.toBe(laneOf("second"));
  expect(lanes.usage()).toMatchObject({ busy: 2, free: 0, waiting: { ordinary: 1 } });
});

test("nobody is sent behind a statement that takes long", () => {
  const { lanes, enter, laneOf, turns } = openLanes(2);
  enter("slow");
  vi.advanceTimersByTime(30);
  enter("quick");
  enter("shares with quick");
  expect(laneOf("shares with quick")).toBe(laneOf("quick"));

  vi.advanceTimersByTime(30);
  enter("waits");
  expect(turns()).not.toContain("waits");
  expect(lanes.usage()).toMatchObject({ busy: 2, free: 0, waiting: { ordinary: 2 } });
});

test("who waits has the next turn, before whoever comes later", () => {
  const { lanes, enter, laneOf, turns } = openLanes(1);
  enter("slow");
  vi.advanceTimersByTime(30);
  for (const who of ["waits", "waits longer"]) enter(who);
  enter("comes later");
  expect(turns()).toEqual(["slow"]);

  lanes.release(laneOf("slow"));
  expect(turns(), "a connection that has moved is shared as before").toEqual([
    "slow",
    "waits",
    "waits longer",
    "comes later",
  ]);
});

test("where statements take long, each connection has one at a time: nobody waits where they cannot be turned away", () => {
  const { lanes, enter, laneOf, turns } = openLanes(1);
  for (let round = 0; round < 20; round++) {
    enter(`slow ${round}`);
    vi.advanceTimersByTime(25);
    lanes.release(laneOf(`slow ${round}`));
  }
  enter("first");
  enter("second");
  expect(turns()).toContain("first");
  expect(turns()).not.toContain("second");
});

test("who is taken back gets no turn", () => {
  const { lanes, turns } = openLanes(1);
  const withdrawn = {
    onAcquired() {
      throw new Error("was taken back");
    },
  };
  let lane: PooledConnection | undefined;
  lanes.acquire({
    onAcquired(entered) {
      lane = entered;
    },
  });
  vi.advanceTimersByTime(30);
  lanes.acquire(withdrawn);
  expect(lanes.cancel(withdrawn)).toBe(true);
  lanes.release(lane as unknown as PooledConnection);
  expect(lanes.cancel(withdrawn), "there is nothing to take back").toBe(false);
  expect(turns()).toEqual([]);
});

describe("of ten connections", () => {
  const of = (account: string, kind: Origin["class"] = "ordinary"): Origin => ({ class: kind, account });
  const isSlow = () => void vi.advanceTimersByTime(30);

  /** Lets an account ask for many connections, with statements that take long. */
  function occupy({ enter }: ReturnType<typeof openLanes>, origin: Origin): void {
    for (let index = 0; index < 20; index++) {
      enter(`${origin.account} ${index}`, origin);
      isSlow();
    }
  }

  test("one workspace uses three at most, and two more for revocations", () => {
    const opened = openLanes(10, fairRules);
    occupy(opened, of("attacker"));
    expect(opened.lanes.usage()).toMatchObject({ busy: 3, waiting: { ordinary: 17 } });
    occupy(opened, of("attacker", "revocation"));
    expect(opened.lanes.usage()).toMatchObject({ busy: 5, waiting: { ordinary: 17, revocation: 18 } });
  });

  test("whatever many workspaces do together, one is left for each of lookups, revocations and the operator", () => {
    const opened = openLanes(10, fairRules);
    for (const account of ["a", "b", "c", "d"]) occupy(opened, of(account));
    expect(opened.lanes.usage()).toMatchObject({ busy: 7, free: 3 });
    const { enter, turns } = opened;
    enter("lookup", of("strangers", "lookup"));
    enter("second lookup", of("another", "lookup"));
    enter("revocation", of("other", "revocation"));
    enter("second revocation", of("another", "revocation"));
    enter("operator", of("others", "operator"));
    expect(turns().slice(-3)).toEqual(["lookup", "revocation", "operator"]);
  });

  test("and many revocations together leave one for what is ordinary", () => {
    const opened = openLanes(10, fairRules);
    for (const account of ["a", "b", "c", "d", "e"]) occupy(opened, of(account, "revocation"));
    expect(opened.lanes.usage()).toMatchObject({ busy: 7, free: 3 });
    opened.enter("ordinary", of("other"));
    expect(opened.turns()).toContain("ordinary");
  });

  test("none has statements of two workspaces at a time, so nobody waits behind another's", () => {
    const { enter, laneOf } = openLanes(10, fairRules);
    for (const who of ["a", "b"]) for (let index = 0; index < 6; index++) enter(`${who}${index}`, of(who));
    const lanesOf = (who: string) => new Set([0, 1, 2, 3, 4, 5].map((index) => laneOf(`${who}${index}`)));
    expect(lanesOf("a").size).toBe(3);
    expect([...lanesOf("a")].filter((lane) => lanesOf("b").has(lane))).toEqual([]);
  });

  test("a revocation is never sent behind another statement", () => {
    const { enter, laneOf, turns, lanes } = openLanes(10, fairRules);
    for (const who of ["first", "second", "third"]) enter(who, of("other", "revocation"));
    expect(turns()).toEqual(["first", "second"]);
    expect(laneOf("first")).not.toBe(laneOf("second"));
    lanes.release(laneOf("first"));
    expect(turns()).toEqual(["first", "second", "third"]);
  });
});

describe("workspaces that wait", () => {
  const rules: PoolRules = { ...fairRules, ordinary: { reserved: 0, share: 1, pipelined: true } };
  const none = { reserved: 0, share: 1, pipelined: false };
  const oneLane = () => openLanes(1, { ...rules, revocation: none, operator: none, lookup: none });
  const of = (account: string, flow?: object): Origin => ({ class: "ordinary", account, flow });

  test("take turns, however much one of them brings; each turn sends what fits behind each other", () => {
    const { lanes, enter, laneOf, turns } = oneLane();
    enter("slow", of("attacker"));
    vi.advanceTimersByTime(30);
    for (let index = 0; index < 40; index++) enter(`attacker ${index}`, of("attacker"));
    for (const who of ["b", "c"]) enter(who, of(who));
    lanes.release(laneOf("slow"));
    // The attacker waited first.
    const sent = turns().length - 1;
    expect(sent).toBeGreaterThan(1);
    expect(sent).toBeLessThanOrEqual(16);
    for (let index = 0; index < sent; index++) lanes.release(laneOf(`attacker ${index}`));
    expect(turns().slice(1 + sent)).toEqual(["b"]);
    lanes.release(laneOf("b"));
    expect(turns().slice(1 + sent)).toEqual(["b", "c"]);
    lanes.release(laneOf("c"));
    expect(turns()[3 + sent]).toBe(`attacker ${sent}`);
  });

  test("get the connection of one that sends all the time: while others wait, it sends no more there", () => {
    const { lanes, enter, laneOf, turns } = oneLane();
    for (let index = 0; index < 5; index++) enter(`busy ${index}`, of("busy"));
    enter("other", of("other"));
    enter("busy 5", of("busy"));
    for (let index = 0; index < 5; index++) lanes.release(laneOf(`busy ${index}`));
    expect(turns().slice(5)).toEqual(["other"]);
  });

  test("serve the connections of their callers in turn", () => {
    const { lanes, enter, laneOf, turns } = openLanes(1, {
      ...fairRules,
      revocation: none,
      operator: none,
      lookup: none,
      ordinary: none,
    });
    const [one, other] = [{}, {}];
    enter("first", of("strangers", one));
    for (let index = 0; index < 3; index++) enter(`one ${index}`, of("strangers", one));
    enter("other", of("strangers", other));
    for (const who of ["first", "one 0", "other"]) lanes.release(laneOf(who));
    expect(turns()).toEqual(["first", "one 0", "other", "one 1"]);
  });
});

test("connections that are replaced take their statements out of every share", () => {
  const { lanes, enter, laneOf } = openLanes(10, fairRules);
  const origin: Origin = { class: "ordinary", account: "a" };
  for (let index = 0; index < 3; index++) {
    enter(`${index}`, origin);
    vi.advanceTimersByTime(30);
  }
  enter("waits", origin);
  lanes.replace(Array.from({ length: 10 }, () => ({}) as Sql));
  expect(lanes.usage()).toMatchObject({ busy: 1, free: 9 });
  for (let index = 0; index < 3; index++) lanes.release(laneOf(`${index}`));
  expect(lanes.usage()).toMatchObject({ busy: 1, free: 9 });
  lanes.release(laneOf("waits"));
  expect(lanes.usage()).toMatchObject({ busy: 0, free: 10 });
});

test("a process that is busy does not take a statement for slow whose answer it has not read yet", () => {
  const lanes = createPool([{} as Sql], undefined, () => 0);
  const turns: PooledConnection[] = [];
  const enter = () => lanes.acquire({ onAcquired: (lane) => turns.push(lane) });
  for (let round = 0; round < 20; round++) {
    enter();
    vi.advanceTimersByTime(25);
    lanes.release(turns.at(-1) as PooledConnection);
  }
  enter();
  enter();
  expect(turns.length).toBe(22);
});
