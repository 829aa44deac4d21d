import { describe, expect, it } from "vitest";
import { createCoDel } from "../../../src/overload/codel.js";
import { createLoadShedder } from "../../../src/overload/event-loop.js";

const options = { targetMs: 50, burstMs: 1_000, intervalMs: 250 };

/** Simulates a process: each served call advances the clock by its duration, and calls arrive in event-loop turns. */
function simulateProcess() {
  let now = 10_000;
  const shedder = createLoadShedder(options, () => now);
  return {
    advance(ms: number) {
      now += ms;
    },
    /** Runs one turn with this many calls, each of this duration if it is served. Returns how many were served. */
    async turn(calls: number, ms: number): Promise<number> {
      let served = 0;
      for (let call = 0; call < calls; call++) {
        if (!shedder.accepts()) continue;
        served += 1;
        now += ms;
      }
      await new Promise(setImmediate);
      return served;
    },
  };
}

describe("load shedding by event-loop delay", () => {
  it("serves a burst, as long as no call waits for more than a second", async () => {
    expect(await simulateProcess().turn(1_000, 0.5)).toBe(1_000);
    expect(await simulateProcess().turn(1_000, 3)).toBe(334);
  });

  it("serves all calls while the turns are short, however many there are", async () => {
    const { turn } = simulateProcess();
    for (let turns = 0; turns < 100; turns++) expect(await turn(500, 0.099)).toBe(500);
  });

  it("serves all calls of 128 clients that send one call at a time, also on a slow machine", async () => {
    const { turn } = simulateProcess();
    for (let turns = 0; turns < 20; turns++) expect(await turn(128, 2)).toBe(128);
  });

  it("ends the turn if such calls take long: in a standing queue, other clients wait for a third of a second", async () => {
    const { turn } = simulateProcess();
    const served: number[] = [];
    for (let turns = 0; turns < 4; turns++) served.push(await turn(128, 20));
    expect(served).toEqual([51, 51, 16, 16]);
  });

  it("cuts a standing queue to the target, and only after the interval", async () => {
    const { turn } = simulateProcess();
    const served: number[] = [];
    for (let turns = 0; turns < 10; turns++) served.push(await turn(800, 0.125));
    expect(served).toEqual([800, 800, 800, 800, ...Array(6).fill(401)]);
  });

  it("serves all calls again as soon as turns are short, and bursts after a cooldown", async () => {
    const { turn, advance } = simulateProcess();
    for (let turns = 0; turns < 10; turns++) await turn(800, 0.125);
    expect(await turn(300, 0.125)).toBe(300);
    expect(await turn(800, 0.125), "the next burst of the same load").toBe(401);
    advance(5_000);
    expect(await turn(800, 0.125)).toBe(800);
  });

  it("sheds no call after one long pause", async () => {
    const { turn } = simulateProcess();
    await turn(1, 200);
    expect(await turn(600, 0.125)).toBe(600);
    expect(await turn(300, 0.125)).toBe(300);
  });
});

describe("CoDel", () => {
  it("allows the burst limit until all waits have exceeded the target for a whole interval", () => {
    const codel = createCoDel(options);
    codel.recordWait(60, 1_000);
    expect(codel.maxWait(1_249)).toBe(1_000);
    expect(codel.maxWait(1_250)).toBe(50);
    codel.recordWait(49, 1_240);
    expect(codel.maxWait(1_500)).toBe(1_000);
    codel.recordWait(60, 1_300);
    expect(codel.maxWait(1_549)).toBe(1_000);
  });

  it("keeps the target limit for a cooldown after a standing queue, which would grow again at once", () => {
    const codel = createCoDel(options);
    codel.recordWait(60, 1_000);
    codel.recordWait(60, 1_300);
    codel.recordWait(0, 1_310);
    expect(codel.maxWait(6_299)).toBe(50);
    expect(codel.maxWait(6_300)).toBe(1_000);
  });
});
