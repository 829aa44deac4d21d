import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, expect, onTestFinished } from "vitest";
import { type Cluster, openCluster } from "./cluster.js";
import { findFailings, type Requirements } from "./findings.js";
import { divergentClocks, openEnvironment } from "./laboratory.js";
import { toText } from "./report.js";
import { type RoundOptions, type RoundState, runRound } from "./round.js";
import { useSession } from "./session.js";

/** Rounds of a test file. They share one PostgreSQL cluster, and each has a database of its own. */
export function openTestRounds() {
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

  async function createDatabase(): Promise<string> {
    const url = new URL(cluster.url);
    url.pathname = `/round_${++databases}`;
    await useSession(cluster.url, (sql) => sql.unsafe(`create database round_${databases}`));
    return url.href;
  }

  return {
    /** @param dist the build that the replicas run */
    async run(dist: string, folder: string, replicas: number, options: RoundOptions): Promise<RoundState> {
      const databaseUrl = await createDatabase();
      const clocks = divergentClocks;
      const environment = await openEnvironment({ cluster, databaseUrl, replicas, clocks, dist, folder });
      try {
        return await runRound(environment, options);
      } finally {
        await environment.close();
      }
    },

    /** Expects that a round of the built service has no violation, and shows enough. */
    expectSound(state: RoundState, seed: number, replicas: number, requirements: Requirements): void {
      const failings = findFailings(state, requirements);
      const design = "none (the built service)";
      const facts = { seed, replicas, design, postgres: cluster.version, ownCpu: 0, failings };
      expect(failings, toText(state, facts)).toEqual([]);
    },
  };
}

/** A folder that is removed after the test. */
export function makeFolder(): string {
  const folder = mkdtempSync(join(tmpdir(), "latchkey-faults-"));
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }));
  return folder;
}
