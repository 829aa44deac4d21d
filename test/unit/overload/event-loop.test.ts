import { describe, expect, it } from "vitest";
import { createCoDel } from "../../../src/overload/codel.js";
import { createLoadShedder } from "../../../src/overload/event-loop.js";

const bounds = { targetMs: 50, burstMs: 1_000, intervalMs: 250 };

/** A process whose clock goes on by what calls take, and which is asked in turns of its event loop. */
function openProcess() {
  let now = 10_000;
  const guard = createLoadShedder(bounds, () => now);
  return {
    pass(ms: number) {
      now += ms;
    },
    /** One turn with so many calls, each of which takes so long if it is served. Returns how many were. */
    async turn(calls: number, ms: number): Promise<number> {
      let served = 0;
      for (let call = 0; call < calls; call++) {
        if (!guard.accepts()) continue;
        served += 1;
        now += ms;
      }
      await new Promise(setImmediate);
      return served;
    },
  };
}

describe("of the calls that wait for the event loop", () => {
  it("a burst is served, as long as nobody waits for more than a second", async () => {
    expect(await openProcess().turn(1_000, 0.5)).toBe(1_000);
    expect(await openProcess().turn(1_000, 3)).toBe(334);
  });

  it("all are served while the turns are short, however many there are", async () => {
    const { turn } = openProcess();
    for (let turns = 0; turns < 100; turns++) expect(await turn(500, 0.099)).toBe(500);
  });

  it("those of 128 clients that ask one after the other are all served, however slow the process is", async () => {
    const { turn } = openProcess();
    for (let turns = 0; turns < 20; turns++) expect(await turn(128, 2)).toBe(128);
  });

  it("a queue that stands is cut to the target, and only after a while", async () => {
    const { turn } = openProcess();
    const served: number[] = [];
    for (let turns = 0; turns < 10; turns++) served.push(await turn(800, 0.125));
    expect(served).toEqual([800, 800, 800, 800, ...Array(6).fill(401)]);
  });

  it("all are served again as soon as turns are short, and bursts once they have been for a while", async () => {
    const { turn, pass } = openProcess();
    for (let turns = 0; turns < 10; turns++) await turn(800, 0.125);
    expect(await turn(300, 0.125)).toBe(300);
    expect(await turn(800, 0.125), "the next wave of the same").toBe(401);
    pass(5_000);
    expect(await turn(800, 0.125)).toBe(800);
  });

  it("one long pause makes nobody be turned away after it", async () => {
    const { turn } = openProcess();
    await turn(1, 200);
    expect(await turn(600, 0.125)).toBe(600);
    expect(await turn(300, 0.125)).toBe(300);
  });
});

describe("patience", () => {
  it("is long until everyone has waited for longer than the target during a whole interval", () => {
    const patience = createCoDel(bounds);
    patience.recordWait(60, 1_000);
    expect(patience.maxWait(1_249)).toBe(1_000);
    expect(patience.maxWait(1_250)).toBe(50);
    patience.recordWait(49, 1_240);
    expect(patience.maxWait(1_500)).toBe(1_000);
    patience.recordWait(60, 1_300);
    expect(patience.maxWait(1_549)).toBe(1_000);
  });

  it("stays short for a while after a queue has stood: it would grow again at once", () => {
    const patience = createCoDel(bounds);
    patience.recordWait(60, 1_000);
    patience.recordWait(60, 1_300);
    patience.recordWait(0, 1_310);
    expect(patience.maxWait(6_299)).toBe(50);
    expect(patience.maxWait(6_300)).toBe(1_000);
  });
});
