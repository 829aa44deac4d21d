import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, it, onTestFinished } from "vitest";
import { openCluster } from "../faults/cluster.js";
import { openLaboratory } from "../faults/laboratory.js";
import { brokenDesigns, type Design, install, sound } from "./designs.js";
import { findFailings, toText } from "./report.js";
import { type RunState, runRounds } from "./round.js";

async function runOne(design: Design): Promise<RunState> {
  const folder = mkdtempSync(join(tmpdir(), "latchkey-failover-"));
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }));
  const cluster = await openCluster(folder, design);
  onTestFinished(cluster.close);
  const dist = install(undefined, design, folder);
  const laboratory = await openLaboratory({ cluster, replicas: 2, dist, folder });
  onTestFinished(laboratory.close);
  return runRounds(laboratory, { seed: 1, rounds: 1, seconds: 1, callsPerSecond: 200 });
}

it("no acknowledged change is lost with the primary, when its synchronous standby takes over", {
  timeout: 120_000,
}, async () => {
  const state = await runOne(sound);
  const failings = findFailings(state, 1);
  expect(failings, toText(state, { seed: 1, design: "as it is", failings })).toEqual([]);
});

it("with a standby that commits do not wait for, the same run finds changes that are lost", {
  timeout: 120_000,
}, async () => {
  const { lost } = await runOne(brokenDesigns["async"] as Design);
  expect(lost).toBeGreaterThan(0);
});
