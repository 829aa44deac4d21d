import { expect, it } from "vitest";
import { explore, type Machine } from "./explore.js";

/** Counts up to a bound by ones and threes. To reach `forbidden` is a violation. */
function createCounter(bound: number, forbidden: number): Machine<number, "one" | "three"> {
  return {
    initial: 0,
    key: (count) => count,
    step: (count, announce) => {
      if (count + 1 <= bound) announce("one", count + 1, count + 1 === forbidden);
      if (count + 3 <= bound) announce("three", count + 3, count + 3 === forbidden);
    },
  };
}

it("an exploration visits every state once, and returns all events", () => {
  const { states, events, violation } = explore(createCounter(100, 101));
  expect(states).toBe(101);
  expect([...events].sort()).toEqual(["one", "three"]);
  expect(violation).toBeUndefined();
});

it("a violation is returned as the shortest trace to it", () => {
  expect(explore(createCounter(100, 9)).violation).toEqual(["three", "three", "three"]);
});
