import { setTimeout as sleep } from "node:timers/promises";
import type { CallResult } from "../../support/clients/low-cost/client.js";
import { openHttpClient } from "../../support/clients/low-cost/http.js";
import { prepare } from "../../support/clients/low-cost/request.js";
import { audit } from "./audit.js";
import { watchEffects } from "./effects.js";
import type { FaultKind } from "./faults.js";
import { type Injector, startInjector } from "./injector.js";
import { createAndDeleteKeys, createSender } from "./insisting.js";
import { runKeyLifecycles } from "./key-life.js";
import { divergentClocks, type Environment } from "./laboratory.js";
import { startDelayedClients } from "./late-clients.js";
import { createPoolExhauster } from "./occupant.js";
import { createPopulation } from "./population.js";
import { createRandom } from "./random.js";
import type { Replica } from "./replica.js";
import type { WorkspaceSubject } from "./subjects.js";
import { createTally, type Tally } from "./tally.js";
import { openReplicaClients, startTraffic } from "./traffic.js";
import { startVerifiers } from "./verifiers.js";
import { createWorkspace, runWorkspaceLifecycles } from "./workspace-life.js";
import { createWriter } from "./writer.js";

/** The parameters of one round. */
export interface RoundOptions {
  readonly seed: number;
  readonly seconds: number;
  readonly callsPerSecond: number;
  /** The number of processes that verify keys themselves, and how often they do so in total. Omitted: none. */
  readonly verifiers?: { readonly count: number; readonly callsPerSecond: number };
  readonly faults: readonly FaultKind[];
  /** Ends the round early when it returns true. */
  readonly shouldStop?: (tally: Tally) => boolean;
  /** Called every 200 ms. */
  readonly progress?: (state: RoundState) => void;
}

/** The state of a round. */
export interface RoundState {
  readonly tally: Tally;
  readonly elapsedMs: number;
  /** For how long at least one fault was active. */
  readonly faultsActiveMs: number;
  readonly activeFaults: readonly string[];
  readonly crashes: number;
  /** The replicas, with the deviation of their clocks. */
  readonly clocks: readonly string[];
}

/** How many subjects of each kind exist at once. With more of them, each would be checked less often. */
const workspacesAtOnce = 6;
const keysAtOnce = 6;

/** Clients that retry calls without a response. */
const retryingClients = 4;

/** The number of workspaces that contain the keys. */
const keyWorkspaceCount = 2;

/** Runs clients, writers and faults concurrently, and checks every result. */
export async function runRound(environment: Environment, options: RoundOptions): Promise<RoundState> {
  const random = createRandom(options.seed);
  const tally = createTally();
  const { replicas, redis, cluster, operatorKey, databaseUrl, dist } = environment;
  const replicaClients = openReplicaClients(replicas);
  let injector: Injector | undefined;
  let over = false;
  const activeFaults = () => injector?.active() ?? [];
  const faultsActiveSince = (begin: number) => injector?.activeSince(begin) ?? [];
  const newWriter = () => createWriter(replicaClients, tally, faultsActiveSince, random.fork(), () => !over);
  const population = createPopulation(random.fork());
  const lifecycles: Promise<void>[] = [];

  const keyWorkspaces: WorkspaceSubject[] = [];
  for (let count = 0; count < keyWorkspaceCount; count++) {
    const keyWorkspace = await createWorkspace(newWriter(), operatorKey);
    if (keyWorkspace !== undefined) keyWorkspaces.push(keyWorkspace);
  }
  for (let slot = 0; slot < workspacesAtOnce; slot++)
    lifecycles.push(runWorkspaceLifecycles(newWriter(), population, operatorKey));
  for (let slot = 0; slot < keysAtOnce; slot++) {
    const keyWorkspace = keyWorkspaces[slot % keyWorkspaces.length];
    if (keyWorkspace !== undefined) lifecycles.push(runKeyLifecycles(newWriter(), population, keyWorkspace));
  }
  for (let slot = 0; slot < retryingClients; slot++) {
    const keyWorkspace = keyWorkspaces[slot % keyWorkspaces.length];
    const send = createSender(replicaClients, random.fork());
    if (keyWorkspace !== undefined)
      lifecycles.push(createAndDeleteKeys(send, population, keyWorkspace, tally, random.fork(), () => over));
  }
  const { callsPerSecond } = options;
  const traffic = startTraffic(replicaClients, callsPerSecond, population, tally, activeFaults, random.fork());
  const delayedClients = startDelayedClients(
    replicas,
    callsPerSecond,
    population,
    tally,
    activeFaults,
    faultsActiveSince,
    random.fork(),
  );
  const verifiers = await startVerifiers({
    dist,
    replicas,
    population,
    count: options.verifiers?.count ?? 0,
    callsPerSecond: options.verifiers?.callsPerSecond ?? 0,
    clocks: divergentClocks,
    tally,
    activeFaults,
  });
  const effects = watchEffects(databaseUrl, population, tally, activeFaults);
  const poolExhauster = await createPoolExhauster(newWriter(), keyWorkspaces, databaseUrl);
  const roundTrip = createRoundTrip(keyWorkspaces);
  const send = createSender(replicaClients, random.fork());
  const auditRecent = () => audit(send, population.recent(), tally, activeFaults);
  const context = {
    replicas,
    verifiers: verifiers.processes,
    redis,
    cluster,
    poolExhauster,
    databaseUrl,
    roundTrip,
    recordBound: (boundMs: number) => void tally.boundsMs.push(boundMs),
    audit: auditRecent,
    random: random.fork(),
  };
  injector = startInjector(context, options.faults, tally);

  const startedAt = performance.now();
  const currentState = (): RoundState => ({
    tally,
    elapsedMs: performance.now() - startedAt,
    faultsActiveMs: injector?.activeMs() ?? 0,
    activeFaults: activeFaults(),
    crashes: [...replicas, ...verifiers.processes].reduce((sum, each) => sum + each.crashes(), 0),
    clocks: replicas.map((replica) => replica.describe()),
  });
  let last = currentState();
  try {
    const isOver = () => performance.now() - startedAt >= options.seconds * 1_000 || injector?.failed();
    while (!isOver() && !options.shouldStop?.(tally)) {
      options.progress?.(currentState());
      await sleep(200);
    }
    last = currentState();
  } finally {
    over = true;
    traffic.stop();
    await injector.stop();
    await verifiers.stop();
    await delayedClients.stop();
    await Promise.all(lifecycles);
    await effects.stop();
    for (const { clients } of replicaClients) for (const client of clients) client.close();
  }
  return last;
}

/**
 * Makes calls that read from Postgres, each on a new connection. A replica distributes connections to its workers in
 * turn, so every process gets one.
 */
function createRoundTrip([keyWorkspace]: readonly WorkspaceSubject[]) {
  const request = prepare("getIdentity", keyWorkspace?.secret ?? "", { externalId: "nobody" });
  return async ({ httpPort, workers }: Replica): Promise<boolean> => {
    const responded = Array.from({ length: workers === 1 ? 1 : 2 * workers }, async () => {
      const client = openHttpClient(httpPort);
      const result = await new Promise<CallResult>((resolve) => client.call(request, resolve));
      client.close();
      return result.kind === "success" || result.kind === "refused";
    });
    return (await Promise.all(responded)).every(Boolean);
  };
}
