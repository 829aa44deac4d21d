import { checkCall, type Observation } from "./checker.js";
import type { Population } from "./population.js";
import type { OtherClock, Replica } from "./replica.js";
import {
  type KeySubject,
  observationsOfCaller,
  observationsOfKey,
  toggled,
  type WorkspaceSubject,
} from "./subjects.js";
import { add, recordViolations, type Tally } from "./tally.js";
import { openVerifierProcess, type ReportedGroup, type VerifierProcess, type WatchedKey } from "./verifier-process.js";

/** Processes that verify the keys of the population themselves. */
export interface Verifiers {
  readonly processes: readonly VerifierProcess[];
  stop(): Promise<void>;
}

export interface VerifiersOptions {
  readonly dist: string;
  readonly replicas: readonly Replica[];
  readonly population: Population;
  readonly count: number;
  /** Verifications per second, of all processes together. */
  readonly callsPerSecond: number;
  readonly clocks: readonly OtherClock[];
  readonly tally: Tally;
  readonly activeFaults: () => readonly string[];
}

type About = WorkspaceSubject | KeySubject;

/** A key that is verified, with the key of the verifier, and whether a permission is required. */
interface Watch {
  readonly caller: About;
  readonly presented: About;
  readonly requiresPermission: boolean;
}

/** How often the processes learn which keys there are. */
const watchMs = 150;

/** How many keys of the population verify themselves. Each needs a stream of its own in each process. */
const maxOwnCallers = 4;

/**
 * For how long after the limit of a suspended replica a verifier may lack a change. When the replica resumes, it cannot
 * know that it was suspended, and grants the rest of its lease once more.
 */
const grantMs = 300;

export async function startVerifiers(options: VerifiersOptions): Promise<Verifiers> {
  const { dist, replicas, population, count, callsPerSecond, clocks, tally, activeFaults } = options;
  /** From the machine's clock to `performance.now()` of this process. */
  const originMs = Number(process.hrtime.bigint()) / 1e6 - performance.now();
  const ids = new Map<string, number>();
  const watches = new Map<number, Watch>();

  function watchedKey(watch: Watch): WatchedKey {
    const { caller, presented, requiresPermission } = watch;
    const name = `${caller.keyId} ${presented.keyId} ${requiresPermission}`;
    const id = ids.get(name) ?? ids.size;
    ids.set(name, id);
    watches.set(id, watch);
    const permissions = requiresPermission ? toggled : undefined;
    return { id, caller: caller.secret, secret: presented.secret, permissions };
  }

  function update(): void {
    const present = population.present();
    const workspaces = present.filter((about) => about.kind === "workspace").slice(0, maxOwnCallers);
    const keys = present.filter((about) => about.kind === "key");
    const own = [...workspaces, ...keys.slice(0, 1)];
    const all: Watch[] = [
      ...own.map((about) => ({ caller: about, presented: about, requiresPermission: false })),
      ...keys.flatMap((key) =>
        [false, true].map((requiresPermission) => ({ caller: key.keyWorkspace, presented: key, requiresPermission })),
      ),
    ];
    const callers = [...new Set(all.map(({ caller }) => caller.secret))];
    const watched = { callers, keys: all.map(watchedKey) };
    for (const verifier of processes) verifier.watch(watched);
  }

  /** The begin that the checker uses, see `Suspends.effectiveBegin`. Any replica may have granted the right. */
  function effectiveBegin(begin: number): number {
    const begins = replicas.flatMap(({ suspends }) => {
      const lenient = suspends.effectiveBegin(begin - grantMs);
      return [suspends.effectiveBegin(begin), lenient < begin - grantMs ? lenient : begin];
    });
    return Math.min(...begins);
  }

  function checkGroup(name: string, { id, code, first, last, count: calls, isLocal }: ReportedGroup): void {
    const watch = watches.get(id);
    if (watch === undefined) return;
    const outcome = code === "VALID" ? "accepted" : code;
    add(tally.verifierResults, outcome, calls);
    if (isLocal) tally.local += calls;
    else tally.askedByVerifiers += calls;
    if (isLocal && activeFaults().length > 0) tally.localDuringFaults += calls;
    const observations = observationsOf(watch, code);
    if (observations === undefined) add(tally.unexpected, `${name}: ${code}`);
    for (const [begin, end] of [first, last]) {
      const call = {
        begin: effectiveBegin(begin - originMs),
        end: end - originMs,
        label: `${isLocal ? "local verification" : "verification"} by ${name}: ${outcome}`,
      };
      recordViolations(tally, checkCall(call, observations ?? []), activeFaults());
    }
  }

  const processes: VerifierProcess[] = [];
  for (let number = 1; number <= count; number++) {
    const name = `verifier ${number}`;
    processes.push(
      await openVerifierProcess(name, {
        dist,
        replicas,
        rate: callsPerSecond / count,
        clock: clocks[number - 1] ?? {},
        onGroups: (groups) => {
          for (const group of groups) checkGroup(name, group);
        },
      }),
    );
  }
  update();
  const timer = setInterval(update, watchMs);
  return {
    processes,
    async stop() {
      clearInterval(timer);
      await Promise.all(processes.map((verifier) => verifier.close()));
    },
  };
}

/** What a result shows about the verifier's own key and the verified key. */
function observationsOf({ caller, presented, requiresPermission }: Watch, code: string): Observation[] | undefined {
  const seen = observationsOfKey(presented.subject, code, requiresPermission);
  return seen && [...(observationsOfCaller(caller, "accepted", true) ?? []), ...seen];
}
