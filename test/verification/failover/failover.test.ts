import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, it, onTestFinished } from "vitest";
import { openCluster } from "../faults/cluster.js";
import { clusterOf, installDesign } from "../faults/designs.js";
import { openEnvironment } from "../faults/laboratory.js";
import { findFailings, toText } from "./report.js";
import { type RunState, runRounds } from "./round.js";

async function runOne(design?: string): Promise<{ state: RunState; postgres: string }> {
  const folder = mkdtempSync(join(tmpdir(), "latchkey-failover-"));
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }));
  const cluster = await openCluster(folder, clusterOf(design));
  onTestFinished(cluster.close);
  const dist = installDesign(design, folder);
  const environment = await openEnvironment({ cluster, replicas: 2, dist, folder });
  onTestFinished(environment.close);
  const state = await runRounds(environment, { seed: 1, rounds: 1, seconds: 1, callsPerSecond: 200 });
  return { state, postgres: cluster.version };
}

it("a failover to the synchronous standby loses no acknowledged change", {
  timeout: 120_000,
}, async () => {
  const { state, postgres } = await runOne();
  const failings = findFailings(state, 1);
  expect(failings, toText(state, { seed: 1, design: "none (the built service)", postgres, failings })).toEqual([]);
});

it("with an asynchronous standby, the same run detects lost changes", {
  timeout: 120_000,
}, async () => {
  const { state } = await runOne("async");
  expect(state.lost).toBeGreaterThan(0);
});
