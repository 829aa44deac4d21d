import { setTimeout as sleep } from "node:timers/promises";
import { audit } from "../faults/audit.js";
import { createAsk, makeAndDeleteKeys } from "../faults/insisting.js";
import { liveAsKeys } from "../faults/key-life.js";
import type { Laboratory } from "../faults/laboratory.js";
import { createPopulation, type Population } from "../faults/population.js";
import { createRandom } from "../faults/random.js";
import type { KeySubject, WorkspaceSubject } from "../faults/subjects.js";
import { createTally, type Tally } from "../faults/tally.js";
import { openEntrances, startTraffic } from "../faults/traffic.js";
import { createWorkspace, liveAsWorkspaces } from "../faults/workspace-life.js";
import { createWriter } from "../faults/writer.js";

export interface RunOptions {
  readonly seed: number;
  /** How many primaries are lost. */
  readonly rounds: number;
  /** How long changes are made before each loss, at least. */
  readonly seconds: number;
  readonly callsPerSecond: number;
  readonly enough?: () => boolean;
  readonly say?: (text: string) => void;
}

export interface RunState {
  /** What the calls between the losses have shown. */
  readonly tally: Tally;
  readonly promotions: number;
  /** Commits whose wait for the standby was cancelled. */
  readonly cancelled: number;
  /** Workspaces and keys, each looked at after every promotion since it was made. */
  readonly subjects: number;
  readonly audited: number;
  /** Those of them that are not as an acknowledged change has left them. */
  readonly lost: number;
  /** From the loss of each primary until a call was answered by its successor. */
  readonly awayMs: readonly number[];
  readonly crashes: number;
}

/** How many changes are acknowledged before each loss, at least: a busy machine takes longer for them. */
const leastChanges = 40;

/** Those that make changes at the same time, of each kind. */
const atOnce = 4;

/** Clients that insist, at the same time: they alone find out whether a second attempt tells the truth. */
const insistingAtOnce = 10;

/**
 * How long the standby gets nothing before its primary is lost. A change is acknowledged a lease after its commit, and a
 * second attempt of it a lease after that: what is committed without the standby is to be acknowledged by then.
 */
const behindMs = 1_500;

const fault = "primary lost";

/**
 * Makes changes through two protocols, loses the primary under them, and looks whether all that was acknowledged is there on
 * its successor. Before, the standby gets nothing for a while, and commits that wait for it are cancelled.
 */
export async function runRounds(laboratory: Laboratory, options: RunOptions): Promise<RunState> {
  const random = createRandom(options.seed);
  const tally = createTally();
  const { cluster, replicas, operatorKey } = laboratory;
  const entrances = openEntrances(replicas);
  let over = false;
  let losing = false;
  const faultsOn = () => (losing ? [fault] : []);
  const writer = () => createWriter(entrances, tally, faultsOn, random.fork(), () => !over);
  const subjects: (WorkspaceSubject | KeySubject)[] = [];
  const population = remembering(createPopulation(random.fork()), subjects);
  const home = await createWorkspace(writer(), operatorKey);
  if (home === undefined) throw new Error("the laboratory has no workspace");

  const lives: Promise<void>[] = [];
  for (let slot = 0; slot < atOnce; slot++) {
    lives.push(liveAsWorkspaces(writer(), population, operatorKey), liveAsKeys(writer(), population, home));
  }
  for (let slot = 0; slot < insistingAtOnce; slot++) {
    const ask = createAsk(entrances, random.fork());
    lives.push(makeAndDeleteKeys(ask, population, home, tally, random.fork(), () => over));
  }
  const { callsPerSecond, rounds, seconds, enough = () => false, say = () => {} } = options;
  const traffic = startTraffic(entrances, callsPerSecond, population, tally, faultsOn, random.fork());
  const ask = createAsk(entrances, random.fork());
  const awayMs: number[] = [];
  let promotions = 0;
  let cancelled = 0;
  let audited = 0;
  let lost = 0;

  try {
    while (promotions < rounds && !enough()) {
      const enoughChanges = tally.writesAcknowledged + leastChanges;
      await sleep(seconds * 1_000);
      while (tally.writesAcknowledged < enoughChanges && !enough()) await sleep(50);
      say(`round ${promotions + 1} of ${rounds}: ${tally.writesAcknowledged} changes acknowledged`);
      losing = true;
      cluster.holdReplication();
      for (const until = performance.now() + behindMs; performance.now() < until; await sleep(20)) {
        cancelled += await cluster.cancelWaits();
      }
      const lostAt = performance.now();
      await cluster.failOver();
      promotions++;
      say(`round ${promotions} of ${rounds}: the standby has taken over; looking for what was acknowledged`);
      // Changes wait for the standby; those who look at what there is do not.
      const [found] = await Promise.all([audit(ask, [...subjects], tally, faultsOn), cluster.addStandby()]);
      awayMs.push(found.answeredAt - lostAt);
      audited += found.audited;
      lost += found.lost;
      losing = false;
    }
  } finally {
    over = true;
    traffic.stop();
    await Promise.all(lives);
    for (const { protocols } of entrances) for (const protocol of protocols) protocol.close();
  }
  const crashes = replicas.reduce((sum, replica) => sum + replica.crashes(), 0);
  return { tally, promotions, cancelled, subjects: subjects.length, audited, lost, awayMs, crashes };
}

/** The same population, which also keeps whoever was ever in it. */
function remembering(population: Population, all: (WorkspaceSubject | KeySubject)[]): Population {
  return {
    ...population,
    admit(about) {
      all.push(about);
      return population.admit(about);
    },
  };
}
