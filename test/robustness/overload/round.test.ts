import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, inject, it, onTestFinished, vi } from "vitest";
import { openBench } from "../../../bench/bench.js";
import { findFailings } from "../../../bench/overload/guarantees.js";
import { type Measured, measure, type Phase } from "../../../bench/overload/measure.js";
import { readOptions } from "../../../bench/overload/options.js";
import { toText } from "../../../bench/overload/report.js";
import { subjects } from "../../../bench/overload/subjects.js";

/**
 * Offered load as multiples of the capacity. While other tests run, the machine may be faster later than at the
 * measurement.
 */
const shares = [2, 4, 8];

/** The maximum memory under overload, as a multiple of the memory at full load. */
const maxMemoryRatio = 2;

// Checks only what must hold on any machine, however busy. `npm run overload` checks latencies and rates.
it("under overload, the service serves some calls and sheds all others, in bounded memory, and recovers", {
  timeout: 120_000,
}, async () => {
  const folder = mkdtempSync(join(tmpdir(), "latchkey-overload-"));
  const bench = openBench({
    quick: true,
    // Without the warm-up, the measured capacity would be half of the real one.
    pace: { warmUpSeconds: 3, roundSeconds: 1, pairs: 1 },
    folder,
    backends: { databaseUrl: inject("databaseUrl"), redisUrl: inject("redisUrl") },
    progress: () => {},
  });
  onTestFinished(async () => {
    await bench.close();
    rmSync(folder, { recursive: true, force: true });
  });
  const [overHttp] = subjects;
  // One round in which some calls are served and others shed proves that both happen. A service that accepts all calls,
  // or none, has no such round. The other conditions must hold in every round.
  const rounds: Phase[] = [];
  for (const share of shares) {
    const { overload, busy, afterwards } = await measure(overHttp as (typeof subjects)[0], bench, 1, share);
    rounds.push(overload);
    // The memory of a process depends on the machine. Its growth must not depend on the offered load.
    expect(Math.max(...overload.memory)).toBeLessThan(maxMemoryRatio * Math.max(...busy.memory));
    expect(afterwards.servedPerSecond).toBeGreaterThan(0);
    if (overload.servedPerSecond > 0 && overload.shed > 0) return;
  }
  expect.fail(`no round served some calls and shed others: ${JSON.stringify(rounds)}`);
});

const phase: Phase = {
  share: 1,
  offeredPerSecond: 500,
  servedPerSecond: 500,
  shedPerSecond: 0,
  shed: 0,
  p50: 1,
  p99: 10,
  latest: 20,
  memory: [100, 110],
};
const passing: Measured = {
  name: "passing",
  title: "passing",
  capacity: 1_000,
  half: phase,
  busy: phase,
  overload: {
    ...phase,
    servedPerSecond: 600,
    shedPerSecond: 1_400,
    shed: 2_800,
    p99: 50,
    memory: [120, 200],
  },
  afterwards: phase,
};

it("the report states that all promises hold", () => {
  expect(findFailings(passing)).toEqual([]);
  const machine = { date: "2026-11-15", cpu: "2 × core", memory: "1 GiB", system: "Linux", versions: {} };
  const text = toText({ machine, seconds: 1, measured: [passing], failings: [] });
  expect(text).toContain("All guarantees hold.");
  expect(text).toContain("120 – 200");
});

it.each<[string, Measured]>([
  ["p99 is 5.1 times", { ...passing, overload: { ...passing.overload, p99: 51 } }],
  ["p99 is NaN times", { ...passing, overload: { ...passing.overload, p99: Number.NaN } }],
  ["0.49 of it is served", { ...passing, overload: { ...passing.overload, servedPerSecond: 490 } }],
  ["no call was shed", { ...passing, overload: { ...passing.overload, shed: 0 } }],
  ["memory grows by 140 MiB", { ...passing, overload: { ...passing.overload, memory: [120, 250] } }],
  ["up to 101 ms late", { ...passing, overload: { ...passing.overload, latest: 101 } }],
  ["2.0 % of half the capacity", { ...passing, afterwards: { ...phase, shedPerSecond: 10 } }],
])("the report names each broken promise: %s", (text, measured) => {
  expect(findFailings(measured).join()).toContain(text);
});

it("the command line is parsed, and invalid options are reported", () => {
  const stderr = vi.spyOn(process.stderr, "write").mockReturnValue(true);
  onTestFinished(() => stderr.mockRestore());
  expect(readOptions(["--seconds", "5", "grpc-verify"])).toMatchObject({ seconds: 5, json: false });
  expect(() => readOptions(["--seconds", "0"])).toThrow("--seconds must be");
  expect(() => readOptions(["nonsense"])).toThrow("there is no operation nonsense");
});
