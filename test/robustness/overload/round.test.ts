import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, inject, it, onTestFinished, vi } from "vitest";
import { openBench } from "../../../bench/bench.js";
import { type Measured, measure, type Phase } from "../../../bench/overload/measure.js";
import { readOptions } from "../../../bench/overload/options.js";
import { toText } from "../../../bench/overload/report.js";
import { subjects } from "../../../bench/overload/subjects.js";
import { findFailings } from "../../../bench/overload/verdict.js";

/** Of the capacity: while other tests run, the machine may have more to spare later than when that was measured. */
const shares = [2, 4, 8];

/** Of what it takes while it is just busy. */
const mostMemory = 2;

// What must hold on any machine, however busy: times and rates are for `npm run overload`.
it("asked more than it can answer, it serves some calls and properly refuses all others, in bounded memory, and goes on", {
  timeout: 120_000,
}, async () => {
  const folder = mkdtempSync(join(tmpdir(), "latchkey-overload-"));
  const bench = openBench({
    quick: true,
    pace: { warmUpSeconds: 3, roundSeconds: 1, pairs: 1 }, // cold, its capacity is half of what it is afterwards
    folder,
    backends: { databaseUrl: inject("databaseUrl"), redisUrl: inject("redisUrl") },
    progress: () => {},
  });
  onTestFinished(async () => {
    await bench.close();
    rmSync(folder, { recursive: true, force: true });
  });
  const [overHttp] = subjects;
  // One round in which some are served and others turned away shows that both happen; no number of rounds does of a
  // service that lets everyone in, or no one. All else must hold in every round.
  const rounds: Phase[] = [];
  for (const share of shares) {
    const { overload, busy, afterwards } = await measure(overHttp as (typeof subjects)[0], bench, 1, share);
    rounds.push(overload);
    // How much a process takes at all depends on the machine. What it takes beyond that does not depend on what is asked.
    expect(Math.max(...overload.memory)).toBeLessThan(mostMemory * Math.max(...busy.memory));
    expect(afterwards.servedPerSecond).toBeGreaterThan(0);
    if (overload.servedPerSecond > 0 && overload.shed > 0) return;
  }
  expect.fail(`in no round were some served and others turned away: ${JSON.stringify(rounds)}`);
});

const phase: Phase = {
  share: 1,
  offeredPerSecond: 500,
  servedPerSecond: 500,
  turnedAwayPerSecond: 0,
  shed: 0,
  p50: 1,
  p99: 10,
  latest: 20,
  memory: [100, 110],
};
const sound: Measured = {
  name: "sound",
  title: "sound",
  capacity: 1_000,
  half: phase,
  busy: phase,
  overload: {
    ...phase,
    servedPerSecond: 600,
    turnedAwayPerSecond: 1_400,
    shed: 2_800,
    p99: 50,
    memory: [120, 200],
  },
  afterwards: phase,
};

it("the report says that all promises hold", () => {
  expect(findFailings(sound)).toEqual([]);
  const machine = { date: "2026-11-15", cpu: "2 × core", memory: "1 GiB", system: "Linux", versions: {} };
  const text = toText({ machine, seconds: 1, measured: [sound], failings: [] });
  expect(text).toContain("All guarantees hold.");
  expect(text).toContain("120 – 200");
});

it.each<[string, Measured]>([
  ["p99 is 5.1 times", { ...sound, overload: { ...sound.overload, p99: 51 } }],
  ["p99 is NaN times", { ...sound, overload: { ...sound.overload, p99: Number.NaN } }],
  ["0.49 of it is served", { ...sound, overload: { ...sound.overload, servedPerSecond: 490 } }],
  ["no call was shed", { ...sound, overload: { ...sound.overload, shed: 0 } }],
  ["memory grows by 140 MiB", { ...sound, overload: { ...sound.overload, memory: [120, 250] } }],
  ["up to 101 ms late", { ...sound, overload: { ...sound.overload, latest: 101 } }],
  ["2.0 % of half the capacity", { ...sound, afterwards: { ...phase, turnedAwayPerSecond: 10 } }],
])("the report finds a promise that does not hold: %s", (sentence, measured) => {
  expect(findFailings(measured).join()).toContain(sentence);
});

it("the command line is understood, or what is wrong with it is said", () => {
  const told = vi.spyOn(process.stderr, "write").mockReturnValue(true);
  onTestFinished(() => told.mockRestore());
  expect(readOptions(["--seconds", "5", "grpc-verify"])).toMatchObject({ seconds: 5, json: false });
  expect(() => readOptions(["--seconds", "0"])).toThrow("--seconds must be");
  expect(() => readOptions(["nonsense"])).toThrow("there is no operation nonsense");
});
