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

/** Moderate, because other tests run on the same machine. `npm run faults` uses a higher rate. */
const callsPerSecond = 500;

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

describe("revocation is immediate, in real processes with real clients", () => {
  it("while replicas, Redis, PostgreSQL and the network fail", { timeout: 180_000 }, async () => {
    const faults = faultsNamed(
      "replica killed",
      "replica frozen",
      "redis failed over to a stale copy",
      "old redis writes replayed",
      "redis cut for one",
      "redis stalled for all",
      "postgres stalled for one",
      "connections occupied for one",
      "replica suspended",
      "postgres sessions terminated",
      "postgres crashed",
      "primary lost, standby promoted",
      "long transaction",
    );
    const state = await run(built, makeFolder(), 3, { seed: 1, seconds: 40, faults });
    const requirements = {
      callsPerSecondDuringFaults: 100,
      writesPerSecond: 3,
      delayedCallsPerSecond: 0.5,
      faults,
      minOfEachFault: 1,
    };
    const failings = findFailings(state, requirements);
    const facts = {
      seed: 1,
      replicas: 3,
      design: "none (the built service)",
      postgres: cluster.version,
      ownCpu: 0,
      failings,
    };
    expect(failings, toText(state, facts)).toEqual([]);
  });
});

describe("fault injection detects designs that break the revocation promise", () => {
  it.each([
    ["cache-aside", faultsNamed("redis cut for one", "old redis writes replayed")],
    ["publish-subscribe", faultsNamed("redis cut for one", "redis stalled for one")],
    ["no-wait", []],
    ["no-recheck", []],
    ["no-condition", faultsNamed("postgres stalled for one", "connections occupied for one")],
    ["own-time-of-day", []],
    ["highest-transaction", faultsNamed("changes of one workspace blocked")],
    ["unheard-warnings", faultsNamed("primary lost, standby promoted")],
    ["unwritten-repeats", faultsNamed("primary lost, standby promoted")],
  ])("%s", { timeout: 180_000 }, async (design, faults) => {
    const folder = makeFolder();
    const state = await run(installDesign(design, folder), folder, 2, {
      seed: 1,
      seconds: 60,
      faults,
      shouldStop: ({ violationCount }) => violationCount > 0,
    });
    expect(state.tally.violationCount).toBeGreaterThan(0);
  });
});

function makeFolder(): string {
  const folder = mkdtempSync(join(tmpdir(), "latchkey-faults-"));
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }));
  return folder;
}

async function run(dist: string, folder: string, replicas: number, options: Omit<RoundOptions, "callsPerSecond">) {
  const databaseUrl = await createDatabase();
  const environment = await openEnvironment({ cluster, databaseUrl, replicas, clocks: divergentClocks, dist, folder });
  try {
    return await runRound(environment, { ...options, callsPerSecond });
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
