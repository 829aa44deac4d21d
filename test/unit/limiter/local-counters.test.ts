import { beforeEach, describe, expect, it } from "vitest";
import type { CounterUse } from "../../../src/limiter/counters.js";
import { createLocalCounters, type LocalCounters } from "../../../src/limiter/local-counters.js";

let time: number;
let counters: LocalCounters;

beforeEach(() => {
  time = 1_000;
  counters = createLocalCounters(() => time, 8, 4);
});

const use = (key: string, more: Partial<CounterUse> = {}): CounterUse => {
  return { key, limit: 3, durationMs: 1_000, cost: 1, ...more };
};
const count = (uses: readonly CounterUse[], workspaceId = "ws_1") => counters.count(workspaceId, uses).readings;
const usedOf = (key: string, workspaceId = "ws_1") => count([use(key, { cost: 0 })], workspaceId)[0]?.used;

describe("counters in the memory of a process", () => {
  it("count all uses, or none if one would exceed its limit", () => {
    expect(count([use("a"), use("b", { limit: 1 })])).toEqual([
      { used: 0, msLeft: 1_000 },
      { used: 0, msLeft: 1_000 },
    ]);
    count([use("a"), use("b", { limit: 1 })]);
    expect([usedOf("a"), usedOf("b")]).toEqual([1, 1]);
  });

  it("refuse a cost beyond what is left, and accept a smaller one", () => {
    count([use("a", { cost: 2 })]);
    count([use("a", { cost: 2 })]);
    expect(usedOf("a")).toBe(2);
    count([use("a")]);
    expect(usedOf("a")).toBe(3);
  });

  it("count nothing if another limit is 0, also for a cost of 0", () => {
    count([use("a"), use("b", { limit: 0, cost: 0 })]);
    expect(usedOf("a")).toBe(0);
  });

  it("begin a window with the first use that counts, and end it after its duration", () => {
    count([use("a", { cost: 0 })]);
    time += 500;
    count([use("a")]);
    time += 400;
    expect(count([use("a")])).toEqual([{ used: 1, msLeft: 600 }]);
    time += 600;
    expect(count([use("a")])).toEqual([{ used: 0, msLeft: 1_000 }]);
    expect(usedOf("a")).toBe(1);
  });

  it("take back what they have counted, and nothing if they have refused it", () => {
    count([use("a")]);
    const counted = counters.count("ws_1", [use("a"), use("b", { cost: 2 }), use("c", { cost: 0 })]);
    const refused = counters.count("ws_1", [use("a"), use("b", { cost: 2 })]);
    expect([usedOf("a"), usedOf("b")]).toEqual([2, 2]);
    refused.takeBack();
    expect([usedOf("a"), usedOf("b")]).toEqual([2, 2]);
    counted.takeBack();
    expect([usedOf("a"), usedOf("b"), usedOf("c")]).toEqual([1, 0, 0]);
  });

  it("begin no window with a use that is taken back, and take nothing from a later window", () => {
    const counted = counters.count("ws_1", [use("a")]);
    time += 400;
    counted.takeBack();
    expect(count([use("a")])).toEqual([{ used: 0, msLeft: 1_000 }]);
    time += 999;
    expect(count([use("a")])).toEqual([{ used: 1, msLeft: 1 }]);

    const late = counters.count("ws_1", [use("b")]);
    time += 1_000;
    count([use("b")]);
    late.takeBack();
    expect(usedOf("b")).toBe(1);
  });

  it("compare with the limit of each use, whatever it was before", () => {
    for (let times = 0; times < 3; times++) count([use("a")]);
    count([use("a", { limit: 4 })]);
    expect(usedOf("a")).toBe(4);
    count([use("a", { limit: 2, cost: 0 })]);
    expect(usedOf("a")).toBe(4);
  });

  it("forget the least recently used of a workspace, and none of other workspaces", () => {
    count([use("other")], "ws_2");
    for (const key of ["a", "b", "c", "d", "a", "e"]) count([use(key)]);
    expect(["a", "b", "c"].map((key) => usedOf(key))).toEqual([2, 0, 1]);
    for (let other = 0; other < 100; other++) count([use(`more ${other}`)]);
    expect(usedOf("other", "ws_2")).toBe(1);
  });

  it("are bounded in total: those of the least recently counted workspace are forgotten", () => {
    for (const workspaceId of ["ws_1", "ws_2", "ws_3"]) {
      for (let key = 0; key < 4; key++) count([use(`${key}`)], workspaceId);
    }
    const left = ["ws_2", "ws_3"].map((workspaceId) => [0, 1, 2, 3].map((key) => usedOf(`${key}`, workspaceId)));
    expect(left).toEqual([
      [1, 1, 1, 1],
      [1, 1, 1, 1],
    ]);
    expect(usedOf("0", "ws_1")).toBe(0);
  });
});
