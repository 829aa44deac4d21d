import { setTimeout as sleep } from "node:timers/promises";
import { audit } from "../faults/audit.js";
import { createAndDeleteKeys, createSender } from "../faults/insisting.js";
import { runKeyLifecycles } from "../faults/key-life.js";
import type { Environment } from "../faults/laboratory.js";
import { createPopulation, type Population } from "../faults/population.js";
import { createRandom } from "../faults/random.js";
import type { KeySubject, WorkspaceSubject } from "../faults/subjects.js";
import { createTally, type Tally } from "../faults/tally.js";
import { openReplicaClients, startTraffic } from "../faults/traffic.js";
import { createWorkspace, runWorkspaceLifecycles } from "../faults/workspace-life.js";
import { createWriter } from "../faults/writer.js";

export interface RunOptions {
  readonly seed: number;
  /** The number of failovers. */
  readonly rounds: number;
  /** The minimum duration of the changes before each failover. */
  readonly seconds: number;
  readonly callsPerSecond: number;
  readonly shouldStop?: () => boolean;
  readonly say?: (text: string) => void;
}

export interface RunState {
  /** The results of the calls during the run. */
  readonly tally: Tally;
  readonly promotions: number;
  /** Commits whose wait for the standby was cancelled. */
  readonly cancelled: number;
  /** Workspaces and keys. Each is audited after every promotion since its creation. */
  readonly subjects: number;
  readonly audited: number;
  /** The number of audits that found an acknowledged change to be lost. */
  readonly lost: number;
  /** From the loss of each primary to the first response after the promotion. */
  readonly unavailableMs: readonly number[];
  readonly crashes: number;
}

/** The minimum of acknowledged changes before each failover. A busy machine needs more time for them. */
const minChanges = 40;

/** The number of concurrent writers of each kind. */
const writersPerKind = 4;

/** The number of concurrent clients that retry. Only they detect a retry whose response acknowledges a lost change. */
const retryingClients = 10;

/**
 * How long replication is paused before the primary is lost. A change is acknowledged one lease after its commit, and a
 * retry one lease after that. The pause is long enough that a commit without the standby would be acknowledged.
 */
const replicationPauseMs = 1_500;

const fault = "primary lost";

/**
 * Makes changes on two replicas, destroys the primary meanwhile, and checks that the promoted standby has all
 * acknowledged changes. Before each failover, replication is paused for a while, and commits that wait for the standby
 * are cancelled.
 */
export async function runRounds(environment: Environment, options: RunOptions): Promise<RunState> {
  const random = createRandom(options.seed);
  const tally = createTally();
  const { cluster, replicas, operatorKey } = environment;
  const replicaClients = openReplicaClients(replicas);
  let over = false;
  let failingOver = false;
  const activeFaults = () => (failingOver ? [fault] : []);
  const writer = () => createWriter(replicaClients, tally, activeFaults, random.fork(), () => !over);
  const subjects: (WorkspaceSubject | KeySubject)[] = [];
  const population = recordSubjects(createPopulation(random.fork()), subjects);
  const keyWorkspace = await createWorkspace(writer(), operatorKey);
  if (keyWorkspace === undefined) throw new Error("the workspace for the keys could not be created");

  const lifecycles: Promise<void>[] = [];
  for (let slot = 0; slot < writersPerKind; slot++) {
    lifecycles.push(
      runWorkspaceLifecycles(writer(), population, operatorKey),
      runKeyLifecycles(writer(), population, keyWorkspace),
    );
  }
  for (let slot = 0; slot < retryingClients; slot++) {
    const send = createSender(replicaClients, random.fork());
    lifecycles.push(createAndDeleteKeys(send, population, keyWorkspace, tally, random.fork(), () => over));
  }
  const { callsPerSecond, rounds, seconds, shouldStop = () => false, say = () => {} } = options;
  const traffic = startTraffic(replicaClients, callsPerSecond, population, tally, activeFaults, random.fork());
  const send = createSender(replicaClients, random.fork());
  const unavailableMs: number[] = [];
  let promotions = 0;
  let cancelled = 0;
  let audited = 0;
  let lost = 0;

  try {
    while (promotions < rounds && !shouldStop()) {
      const targetChanges = tally.writesAcknowledged + minChanges;
      await sleep(seconds * 1_000);
      while (tally.writesAcknowledged < targetChanges && !shouldStop()) await sleep(50);
      say(`round ${promotions + 1} of ${rounds}: ${tally.writesAcknowledged} changes acknowledged`);
      failingOver = true;
      cluster.pauseReplication();
      for (const until = performance.now() + replicationPauseMs; performance.now() < until; await sleep(20)) {
        cancelled += await cluster.cancelWaits();
      }
      const lostAt = performance.now();
      await cluster.failOver();
      promotions++;
      say(`round ${promotions} of ${rounds}: standby promoted; checking the acknowledged changes`);
      // Changes wait for the new standby. The reads of the audit do not.
      const [found] = await Promise.all([audit(send, [...subjects], tally, activeFaults), cluster.addStandby()]);
      unavailableMs.push(found.firstResponseAt - lostAt);
      audited += found.audited;
      lost += found.lost;
      failingOver = false;
    }
  } finally {
    over = true;
    traffic.stop();
    await Promise.all(lifecycles);
    for (const { clients } of replicaClients) for (const client of clients) client.close();
  }
  const crashes = replicas.reduce((sum, replica) => sum + replica.crashes(), 0);
  return { tally, promotions, cancelled, subjects: subjects.length, audited, lost, unavailableMs, crashes };
}

/** A population that also records every subject that was ever added. */
function recordSubjects(population: Population, all: (WorkspaceSubject | KeySubject)[]): Population {
  return {
    ...population,
    add(about) {
      all.push(about);
      return population.add(about);
    },
  };
}
