import { setTimeout as sleep } from "node:timers/promises";
import type { Answer } from "./answer.js";
import { audit } from "./audit.js";
import { watchEffects } from "./effects.js";
import type { FaultKind } from "./faults.js";
import { openHttpClient } from "./http-client.js";
import { type Injector, startInjector } from "./injector.js";
import { createAsk, makeAndDeleteKeys } from "./insisting.js";
import { liveAsKeys } from "./key-life.js";
import type { Laboratory } from "./laboratory.js";
import { startLateClients } from "./late-clients.js";
import { createOccupant } from "./occupant.js";
import { createPopulation } from "./population.js";
import { createRandom } from "./random.js";
import type { Replica } from "./replica.js";
import { prepare } from "./request.js";
import type { WorkspaceSubject } from "./subjects.js";
import { createTally, type Tally } from "./tally.js";
import { openEntrances, startTraffic } from "./traffic.js";
import { createWorkspace, liveAsWorkspaces } from "./workspace-life.js";
import { createWriter } from "./writer.js";

/** What one round is to be. */
export interface RoundOptions {
  readonly seed: number;
  readonly seconds: number;
  readonly callsPerSecond: number;
  readonly faults: readonly FaultKind[];
  /** Ends the round before its time, when this says so. */
  readonly enough?: (tally: Tally) => boolean;
  /** Told every 200 ms. */
  readonly progress?: (state: RoundState) => void;
}

/** How a round stands. */
export interface RoundState {
  readonly tally: Tally;
  readonly elapsedMs: number;
  /** For how long at least one fault was on. */
  readonly faultsOnMs: number;
  readonly faultsOn: readonly string[];
  readonly crashes: number;
  /** How the clocks of replicas differ by now. */
  readonly clocks: readonly string[];
}

/** Subjects of each kind that are there at once. More would be called about more rarely. */
const workspacesAtOnce = 6;
const keysAtOnce = 6;

/** Clients that repeat what was not answered. */
const insistingAtOnce = 4;

/** The workspaces that the keys are in. */
const homesAtOnce = 2;

/** Lets clients call, writers write and faults happen, all at once, and judges every answer. */
export async function runRound(laboratory: Laboratory, options: RoundOptions): Promise<RoundState> {
  const random = createRandom(options.seed);
  const tally = createTally();
  const { replicas, redis, cluster, operatorKey, databaseUrl } = laboratory;
  const entrances = openEntrances(replicas);
  let injector: Injector | undefined;
  let over = false;
  const faultsOn = () => injector?.on() ?? [];
  const faultsSince = (begin: number) => injector?.since(begin) ?? [];
  const newWriter = () => createWriter(entrances, tally, faultsSince, random.fork(), () => !over);
  const population = createPopulation(random.fork());
  const lives: Promise<void>[] = [];

  const homes: WorkspaceSubject[] = [];
  for (let count = 0; count < homesAtOnce; count++) {
    const home = await createWorkspace(newWriter(), operatorKey);
    if (home !== undefined) homes.push(home);
  }
  for (let slot = 0; slot < workspacesAtOnce; slot++)
    lives.push(liveAsWorkspaces(newWriter(), population, operatorKey));
  for (let slot = 0; slot < keysAtOnce; slot++) {
    const home = homes[slot % homes.length];
    if (home !== undefined) lives.push(liveAsKeys(newWriter(), population, home));
  }
  for (let slot = 0; slot < insistingAtOnce; slot++) {
    const home = homes[slot % homes.length];
    const ask = createAsk(entrances, random.fork());
    if (home !== undefined) lives.push(makeAndDeleteKeys(ask, population, home, tally, random.fork(), () => over));
  }
  const { callsPerSecond } = options;
  const traffic = startTraffic(entrances, callsPerSecond, population, tally, faultsOn, random.fork());
  const lateClients = startLateClients(
    replicas,
    callsPerSecond,
    population,
    tally,
    faultsOn,
    faultsSince,
    random.fork(),
  );
  const effects = watchEffects(databaseUrl, population, tally, faultsOn);
  const occupant = await createOccupant(newWriter(), homes, databaseUrl);
  const roundTrip = createRoundTrip(homes);
  const ask = createAsk(entrances, random.fork());
  const lookAtRecent = () => audit(ask, population.recent(), tally, faultsOn);
  const scene = {
    replicas,
    redis,
    cluster,
    occupant,
    databaseUrl,
    roundTrip,
    suspended: (boundMs: number) => void tally.boundsMs.push(boundMs),
    audit: lookAtRecent,
    random: random.fork(),
  };
  injector = startInjector(scene, options.faults, tally);

  const began = performance.now();
  const state = (): RoundState => ({
    tally,
    elapsedMs: performance.now() - began,
    faultsOnMs: injector?.onForMs() ?? 0,
    faultsOn: faultsOn(),
    crashes: replicas.reduce((sum, replica) => sum + replica.crashes(), 0),
    clocks: replicas.map((replica) => replica.describe()),
  });
  let last = state();
  try {
    const isOver = () => performance.now() - began >= options.seconds * 1_000 || injector?.failed();
    while (!isOver() && !options.enough?.(tally)) {
      options.progress?.(state());
      await sleep(200);
    }
    last = state();
  } finally {
    over = true;
    traffic.stop();
    await injector.stop();
    await lateClients.stop();
    await Promise.all(lives);
    await effects.stop();
    for (const { protocols } of entrances) for (const protocol of protocols) protocol.close();
  }
  return last;
}

/** By calls that read from Postgres, each on a connection of its own: a replica hands these to its processes by turns. */
function createRoundTrip([home]: readonly WorkspaceSubject[]) {
  const request = prepare("getIdentity", home?.secret ?? "", { externalId: "nobody" });
  return async ({ httpPort, workers }: Replica): Promise<boolean> => {
    const answered = Array.from({ length: workers === 1 ? 1 : 2 * workers }, async () => {
      const protocol = openHttpClient(httpPort);
      const answer = await new Promise<Answer>((resolve) => protocol.call(request, resolve));
      protocol.close();
      return answer.kind === "success" || answer.kind === "refused";
    });
    return (await Promise.all(answered)).every(Boolean);
  };
}
