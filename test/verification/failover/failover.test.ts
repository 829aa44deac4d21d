import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, it, onTestFinished } from "vitest";
import { openCluster } from "../faults/cluster.js";
import { clusterOf, installDesign } from "../faults/designs.js";
import { openLaboratory } from "../faults/laboratory.js";
import { findFailings, toText } from "./report.js";
import { type RunState, runRounds } from "./round.js";

async function runOne(design?: string): Promise<{ state: RunState; postgres: string }> {
  const folder = mkdtempSync(join(tmpdir(), "latchkey-failover-"));
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }));
  const cluster = await openCluster(folder, clusterOf(design));
  onTestFinished(cluster.close);
  const dist = installDesign(design, folder);
  const laboratory = await openLaboratory({ cluster, replicas: 2, dist, folder });
  onTestFinished(laboratory.close);
  const state = await runRounds(laboratory, { seed: 1, rounds: 1, seconds: 1, callsPerSecond: 200 });
  return { state, postgres: cluster.version };
}

it("no acknowledged change is lost with the primary, when its synchronous standby takes over", {
  timeout: 120_000,
}, async () => {
  const { state, postgres } = await runOne();
  const failings = findFailings(state, 1);
  expect(failings, toText(state, { seed: 1, design: "as it is", postgres, failings })).toEqual([]);
});

it("with a standby that commits do not wait for, the same run finds changes that are lost", {
  timeout: 120_000,
}, async () => {
  const { state } = await runOne("async");
  expect(state.lost).toBeGreaterThan(0);
});
