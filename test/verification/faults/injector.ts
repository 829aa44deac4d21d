import { setTimeout as sleep } from "node:timers/promises";
import { type FaultContext, type FaultKind, faultKinds, type Resource } from "./faults.js";
import type { Replica } from "./replica.js";
import { add, type Tally } from "./tally.js";

/** Injects faults, several at a time, until it is stopped. */
export interface Injector {
  /** The faults that are active now. */
  active(): readonly string[];
  /** The faults that were active at some moment since `begin`. */
  activeSince(begin: number): readonly string[];
  /** For how long at least one fault was active. */
  activeMs(): number;
  /** Whether a fault could not be injected or healed. Then no more are injected, and `stop` rejects with the reason. */
  failed(): boolean;
  /** Resolves when all faults are healed. Rejects if one could not be. */
  stop(): Promise<void>;
}

const maxActive = 3;

/** How long ended faults are remembered. A write takes no longer. */
const retentionMs = 10_000;

/** Injects faults of these kinds. Each kind is used once before any is repeated. */
export function startInjector(context: FaultContext, kinds: readonly FaultKind[], tally: Tally): Injector {
  const { random, replicas } = context;
  const locked = new Set<string>();
  const active = new Set<string>();
  let ended: { readonly name: string; readonly at: number }[] = [];
  let activeMs = 0;
  let activeFrom = 0;
  let stopped = false;

  async function inject(kind: FaultKind, replica: Replica, locks: readonly string[]): Promise<void> {
    for (const lock of locks) locked.add(lock);
    const name = kind.name;
    if (active.size === 0) activeFrom = performance.now();
    active.add(name);
    add(tally.faults, name);
    try {
      const heal = await kind.start(context, replica);
      await sleep(random.between(...kind.durationMs));
      await heal();
    } finally {
      active.delete(name);
      const now = performance.now();
      if (active.size === 0) activeMs += now - activeFrom;
      ended = [...ended.filter(({ at }) => at > now - retentionMs), { name, at: now }];
      for (const lock of locks) locked.delete(lock);
    }
  }

  async function run(): Promise<void> {
    const inFlight = new Set<Promise<void>>();
    let bag: FaultKind[] = [];
    let failure: unknown;
    for (let injected = 0; !stopped && failure === undefined; ) {
      if (bag.length === 0) bag = random.shuffle(kinds);
      const replica = random.pick(replicas);
      const at = bag.findIndex(
        ({ name, resource, appliesTo }) =>
          !active.has(name) && (appliesTo?.(replica) ?? true) && isFree(locksOf(resource, replica, replicas), locked),
      );
      const [kind] = active.size < maxActive && at >= 0 ? bag.splice(at, 1) : [];
      if (kind !== undefined) {
        const fault = inject(kind, replica, locksOf(kind.resource, replica, replicas))
          .catch((error) => {
            failure = error;
          })
          .finally(() => inFlight.delete(fault));
        inFlight.add(fault);
        // From time to time all faults are healed, so that every kind also hits a healthy service.
        if (++injected % 8 === 0) {
          await Promise.all(inFlight);
          await sleep(random.between(500, 1_500));
        }
      }
      await sleep(random.between(50, 600));
    }
    await Promise.all(inFlight);
    if (failure !== undefined) throw failure;
  }

  const running = run();
  let failed = false;
  running.catch(() => {
    failed = true; // stop() rejects with the error
  });
  return {
    active: () => [...active],
    activeSince: (begin) => [...new Set([...active, ...ended.filter(({ at }) => at >= begin).map(({ name }) => name)])],
    activeMs: () => activeMs + (active.size > 0 ? performance.now() - activeFrom : 0),
    failed: () => failed,
    async stop() {
      stopped = true;
      await running;
    },
  };
}

/** Finds kinds of faults by name. */
export function faultsNamed(...names: string[]): FaultKind[] {
  return names.map((name) => {
    const kind = faultKinds.find((each) => each.name === name);
    if (kind === undefined) throw new Error(`there is no fault named ${name}`);
    return kind;
  });
}

function isFree(locks: readonly string[], locked: ReadonlySet<string>): boolean {
  return locks.every((lock) => !locked.has(lock));
}

type LocksOf = (replica: string, all: (prefix: string) => string[]) => string[];

/** The locks that a fault on each resource takes, so that conflicting faults are not active together. */
const resourceLocks: Readonly<Record<Resource, LocksOf>> = {
  redis: () => ["redis"],
  "redis link of one": (replica) => [`redis ${replica}`],
  "redis links of all": (_replica, all) => all("redis"),
  "postgres link of one": (replica) => [`postgres ${replica}`],
  "postgres links of all": (_replica, all) => all("postgres"),
  // Restarts of replicas are allowed meanwhile. They may only need another attempt.
  "sessions of postgres": () => ["database"],
  // No replica reaches PostgreSQL.
  postgres: (_replica, all) => ["database", ...all("postgres")],
  // There is only one row to lock, and the changes that wait for it must reach the replica.
  "connections of one": (replica) => ["locked row", `process ${replica}`, `postgres ${replica}`],
  // A replica can start only if it reaches its database.
  "process of one": (replica) => [`process ${replica}`, `postgres ${replica}`],
  // Its database must not be disturbed either. The promise would then allow the replica more time.
  "process of one, and its database": (replica) => ["database", `process ${replica}`, `postgres ${replica}`],
  verifier: () => ["verifier"],
  nothing: () => [],
};

function locksOf(resource: Resource, { name }: Replica, replicas: readonly Replica[]): string[] {
  return resourceLocks[resource](name, (prefix) => replicas.map((replica) => `${prefix} ${replica.name}`));
}
