import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from "vitest";
import { type Cluster, openCluster } from "./cluster.js";
import { built, installDesign } from "./designs.js";
import { findFailings } from "./findings.js";
import { faultsNamed } from "./injector.js";
import { divergentClocks, openEnvironment } from "./laboratory.js";
import { toText } from "./report.js";
import { type RoundOptions, runRound } from "./round.js";
import { useSession } from "./session.js";

/** Moderate, because other tests run on the same machine. `npm run faults` uses higher rates. */
const load = { callsPerSecond: 100, verifiers: { count: 2, callsPerSecond: 2_000 } };

let cluster: Cluster;
let clusterFolder: string;
let databases = 0;
beforeAll(async () => {
  clusterFolder = mkdtempSync(join(tmpdir(), "latchkey-faults-"));
  cluster = await openCluster(clusterFolder);
});
afterAll(async () => {
  await cluster.close();
  rmSync(clusterFolder, { recursive: true, force: true });
});

describe("revocation is immediate in processes that verify keys themselves", () => {
  it("while they and their replicas fail", { timeout: 180_000 }, async () => {
    const faults = faultsNamed(
      "verifier frozen",
      "verifier suspended",
      "verifier cut off",
      "verifier cut off from one replica",
      "verifier stalled",
      "verifier delayed",
      "verifier answered late",
      "verifier restarted with other clocks",
      "replica killed",
      "replica frozen",
      "postgres stalled for one",
    );
    const state = await run(built, makeFolder(), { seed: 1, seconds: 40, faults });
    const requirements = {
      callsPerSecondDuringFaults: 20,
      localPerSecondDuringFaults: 200,
      writesPerSecond: 3,
      delayedCallsPerSecond: 0,
      faults,
      minOfEachFault: 1,
    };
    const failings = findFailings(state, requirements);
    const facts = {
      seed: 1,
      replicas: 2,
      design: "none (the built service)",
      postgres: cluster.version,
      ownCpu: 0,
      failings,
    };
    expect(failings, toText(state, facts)).toEqual([]);
  });
});

describe("fault injection detects verifiers that break the revocation promise", () => {
  it.each([
    ["grant-from-arrival", faultsNamed("verifier answered late")],
    ["invalidation-after-grant", []],
    ["states-kept", faultsNamed("verifier cut off")],
    ["caller-unchecked", []],
    ["unnoticed-suspension", faultsNamed("verifier suspended")],
  ])("%s", { timeout: 180_000 }, async (design, faults) => {
    const folder = makeFolder();
    const state = await run(installDesign(design, folder), folder, {
      seed: 1,
      seconds: 60,
      faults,
      shouldStop: ({ violationCount }) => violationCount > 0,
    });
    process.stdout.write(`verifier faults: ${design}: detected after ${(state.elapsedMs / 1_000).toFixed(1)} s\n`);
    expect(state.tally.violationCount).toBeGreaterThan(0);
    expect(state.tally.violations.map(({ call }) => call.label)).toContainEqual(expect.stringMatching(/^local/));
  });
});

function makeFolder(): string {
  const folder = mkdtempSync(join(tmpdir(), "latchkey-faults-"));
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }));
  return folder;
}

async function run(dist: string, folder: string, options: Omit<RoundOptions, "callsPerSecond" | "verifiers">) {
  const databaseUrl = await createDatabase();
  const environment = await openEnvironment({
    cluster,
    databaseUrl,
    replicas: 2,
    clocks: divergentClocks,
    dist,
    folder,
  });
  try {
    return await runRound(environment, { ...options, ...load });
  } finally {
    await environment.close();
  }
}

/** Creates an empty database in the cluster that all tests of this file share. */
async function createDatabase(): Promise<string> {
  const url = new URL(cluster.url);
  url.pathname = `/round_${++databases}`;
  await useSession(cluster.url, (sql) => sql.unsafe(`create database round_${databases}`));
  return url.href;
}
