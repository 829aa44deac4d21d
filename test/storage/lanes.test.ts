import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { createLanes, type Lane } from "../../src/storage/lanes.js";
import type { Sql } from "../../src/storage/postgres.js";

beforeEach(() => void vi.useFakeTimers({ toFake: ["performance"] }));
afterEach(() => void vi.useRealTimers());

/** Lanes over connections that are never used, and who got a turn on which of them. */
function openLanes(connections: number) {
  const pools = Array.from({ length: connections }, () => ({}) as Sql);
  const turns: { who: string; lane: Lane }[] = [];
  const lanes = createLanes(pools);
  return {
    lanes,
    enter: (who: string) => lanes.enter({ goOn: (lane) => turns.push({ who, lane }) }),
    laneOf: (who: string) => turns.find((turn) => turn.who === who)?.lane as Lane,
    turns: () => turns.map(({ who }) => who),
  };
}

test("a statement gets a connection to itself while there is one, and shares one after that", () => {
  const { lanes, enter, laneOf, turns } = openLanes(2);
  for (const who of ["first", "second", "third"]) enter(who);
  expect(turns()).toEqual(["first", "second", "third"]);
  expect(laneOf("first")).not.toBe(laneOf("second"));
  expect(lanes.use()).toEqual({ busy: 2, free: 0, waiting: 1 });
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
  expect(lanes.use()).toEqual({ busy: 2, free: 0, waiting: 2 });
});

test("who waits has the next turn, before whoever comes later", () => {
  const { lanes, enter, laneOf, turns } = openLanes(1);
  enter("slow");
  vi.advanceTimersByTime(30);
  for (const who of ["waits", "waits longer"]) enter(who);
  enter("comes later");
  expect(turns()).toEqual(["slow"]);

  lanes.leave(laneOf("slow"));
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
    lanes.leave(laneOf(`slow ${round}`));
  }
  enter("first");
  enter("second");
  expect(turns()).toContain("first");
  expect(turns()).not.toContain("second");
});

test("who is taken back gets no turn", () => {
  const { lanes, turns } = openLanes(1);
  const withdrawn = {
    goOn() {
      throw new Error("was taken back");
    },
  };
  let lane: Lane | undefined;
  lanes.enter({
    goOn(entered) {
      lane = entered;
    },
  });
  vi.advanceTimersByTime(30);
  lanes.enter(withdrawn);
  expect(lanes.withdraw(withdrawn)).toBe(true);
  lanes.leave(lane as unknown as Lane);
  expect(lanes.withdraw(withdrawn), "there is nothing to take back").toBe(false);
  expect(turns()).toEqual([]);
});
