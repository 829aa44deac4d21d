import { setTimeout as sleep } from "node:timers/promises";
import { type FaultKind, faultKinds, type Part, type Scene } from "./faults.js";
import type { Replica } from "./replica.js";
import { add, type Tally } from "./tally.js";

/** Makes faults, several at once, until it is told to stop. */
export interface Injector {
  /** The faults that are on at this moment. */
  on(): readonly string[];
  /** The faults that were on at some moment since then. */
  since(begin: number): readonly string[];
  /** For how long at least one fault was on. */
  onForMs(): number;
  /** Whether a fault could not be made or healed: then there are no more, and `stop` says why. */
  failed(): boolean;
  /** Resolves when all is healed; rejects if something could not be. */
  stop(): Promise<void>;
}

const mostAtOnce = 3;

/** How long ended faults are remembered; a write takes no longer. */
const memoryMs = 10_000;

/** Makes faults of these kinds, each once before any comes again. */
export function startInjector(scene: Scene, kinds: readonly FaultKind[], tally: Tally): Injector {
  const { random, replicas } = scene;
  const held = new Set<string>();
  const on = new Set<string>();
  let ended: { readonly name: string; readonly at: number }[] = [];
  let onForMs = 0;
  let onSince = 0;
  let stopped = false;

  async function make(kind: FaultKind, one: Replica, parts: readonly string[]): Promise<void> {
    for (const part of parts) held.add(part);
    const name = kind.name;
    if (on.size === 0) onSince = performance.now();
    on.add(name);
    add(tally.faults, name);
    try {
      const heal = await kind.start(scene, one);
      await sleep(random.between(...kind.lasts));
      await heal();
    } finally {
      on.delete(name);
      const now = performance.now();
      if (on.size === 0) onForMs += now - onSince;
      ended = [...ended.filter(({ at }) => at > now - memoryMs), { name, at: now }];
      for (const part of parts) held.delete(part);
    }
  }

  async function run(): Promise<void> {
    const underWay = new Set<Promise<void>>();
    let bag: FaultKind[] = [];
    let failure: unknown;
    for (let made = 0; !stopped && failure === undefined; ) {
      if (bag.length === 0) bag = random.shuffle(kinds);
      const one = random.pick(replicas);
      const at = bag.findIndex(
        ({ name, holds, fits }) =>
          !on.has(name) && (fits?.(one) ?? true) && isFree(partsOf(holds, one, replicas), held),
      );
      const [kind] = on.size < mostAtOnce && at >= 0 ? bag.splice(at, 1) : [];
      if (kind !== undefined) {
        const fault = make(kind, one, partsOf(kind.holds, one, replicas))
          .catch((error) => {
            failure = error;
          })
          .finally(() => underWay.delete(fault));
        underWay.add(fault);
        // Now and then all heals, so that every fault also meets a service in full health.
        if (++made % 8 === 0) {
          await Promise.all(underWay);
          await sleep(random.between(500, 1_500));
        }
      }
      await sleep(random.between(50, 600));
    }
    await Promise.all(underWay);
    if (failure !== undefined) throw failure;
  }

  const running = run();
  let failed = false;
  running.catch(() => {
    failed = true; // told by stop()
  });
  return {
    on: () => [...on],
    since: (begin) => [...new Set([...on, ...ended.filter(({ at }) => at >= begin).map(({ name }) => name)])],
    onForMs: () => onForMs + (on.size > 0 ? performance.now() - onSince : 0),
    failed: () => failed,
    async stop() {
      stopped = true;
      await running;
    },
  };
}

/** The kinds of these names. */
export function faultsNamed(...names: string[]): FaultKind[] {
  return names.map((name) => {
    const kind = faultKinds.find((each) => each.name === name);
    if (kind === undefined) throw new Error(`there is no fault named ${name}`);
    return kind;
  });
}

function isFree(parts: readonly string[], held: ReadonlySet<string>): boolean {
  return parts.every((part) => !held.has(part));
}

type PartsOf = (one: string, all: (prefix: string) => string[]) => string[];

const partsHeld: Readonly<Record<Part, PartsOf>> = {
  redis: () => ["redis"],
  "redis link of one": (one) => [`redis ${one}`],
  "redis links of all": (_one, all) => all("redis"),
  "postgres link of one": (one) => [`postgres ${one}`],
  "postgres links of all": (_one, all) => all("postgres"),
  // A replica that starts meanwhile may need another attempt, no more.
  "sessions of postgres": () => ["database"],
  // Nobody reaches it.
  postgres: (_one, all) => ["database", ...all("postgres")],
  // There is one row to lock, and the changes that wait for it have to arrive.
  "connections of one": (one) => ["occupant", `process ${one}`, `postgres ${one}`],
  // A replica starts only if it reaches its database.
  "process of one": (one) => [`process ${one}`, `postgres ${one}`],
  // Nor is it disturbed: then it would be entitled to more time.
  "process of one, and its database": (one) => ["database", `process ${one}`, `postgres ${one}`],
  nothing: () => [],
};

function partsOf(part: Part, { name }: Replica, replicas: readonly Replica[]): string[] {
  return partsHeld[part](name, (prefix) => replicas.map((replica) => `${prefix} ${replica.name}`));
}
