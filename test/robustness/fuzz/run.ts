import fc from "fast-check";
import { anyCase, type Case } from "./cases.js";
import { kinds } from "./kinds.js";
import { type Ledger, mostAttempts, openLane } from "./lane.js";
import { operations } from "./operations.js";
import { createSender } from "./send.js";
import { protocolNames } from "./sent.js";
import { watchCases } from "./slow-cases.js";
import { findMisstored } from "./stored.js";
import { createTally, type Tally } from "./tally.js";

/** The service that is tried. */
export interface Subject {
  readonly httpUrl: string;
  readonly grpcAddress: string;
  readonly databaseUrl: string;
  readonly operatorKey: string;
}

export interface RunOptions {
  readonly seed: number;
  readonly cases: number;
  /** Plays one case again: the path that was reported with its seed. */
  readonly path?: string | undefined;
  readonly progress?: (tally: Tally) => void;
}

/** What came of a run. */
export interface Run {
  readonly tally: Tally;
  readonly elapsedMs: number;
  /** How long the slowest case kept the event loop, in units of work of the same machine. */
  readonly slowest: number;
  /** What is wrong with the service, or with the run itself; empty if nothing is. */
  readonly failings: readonly string[];
}

/** How many cases are under way at once. */
const lanes = 32;

/** How often it is tried to make a case smaller that has failed. */
const mostTries = 100;

/** From so many cases on, none of their sorts may be missing. */
const enough = 10_000;

/**
 * How much may be asked again because the service was not ready. Where a busy machine makes it stand still for a second,
 * every lane asks again up to four times, however few cases that second would have had: one such moment is free, and a
 * tenth of the cases allows for more in a longer run. On two cores with five times their work, nothing was asked again.
 * A service that refuses one call in four for no reason oversteps it in the shortest run.
 */
const mostAskedAgain = (cases: number) => lanes * (mostAttempts - 1) + cases / 10;

/** Sends so many cases to the service, and says what was not answered as it must be. */
export async function runFuzz(subject: Subject, { seed, cases, path, progress }: RunOptions): Promise<Run> {
  const beganAt = performance.now();
  const tally = createTally();
  const ledger: Ledger = new Map();
  const watched = watchCases(createSender(subject));
  const { sender } = watched;
  const before = prototypes();
  const anything = anyCase();
  const failings: string[] = [];
  let slowest = 0;
  /** The lane that has found a mistake. */
  let failed: number | undefined;

  async function runLane(index: number): Promise<void> {
    const lane = await openLane({ sender, operatorKey: subject.operatorKey, ledger, tally });
    let triesSinceFailure = 0;
    let played = 0;
    const property = fc.asyncProperty(anything, async (made) => {
      const again = `again: npm run fuzz -- --seed ${seed + index} --path ${path ?? played++}`;
      // One mistake at a time: what another lane has found is being made small.
      if (failed !== undefined && (failed !== index || ++triesSinceFailure > mostTries)) return;
      try {
        await lane.play(made);
      } catch (error) {
        failed = index;
        throw error;
      } finally {
        if (made.sent !== undefined) watched.name(made.sent, again);
      }
      progress?.(tally);
    });
    const details = await fc.check(property, {
      seed: seed + index,
      numRuns: path === undefined ? Math.ceil(cases / lanes) : 1,
      ...(path !== undefined && { path }),
    });
    if (details.failed) failings.push(reportOf(details));
  }

  try {
    await Promise.all(Array.from({ length: path === undefined ? lanes : 1 }, (_, index) => runLane(index)));
    failings.push(...(await findMisstored(subject.databaseUrl, ledger)).slice(0, 10));
    // Last, because what is sent again is in no ledger.
    const slow = await watched.confirm();
    slowest = slow.slowest;
    failings.push(...slow.failings.slice(0, 10));
  } finally {
    sender.close();
  }
  if (prototypes() !== before) failings.push("a prototype was changed");
  if (failings.length === 0 && path === undefined) failings.push(...gapsIn(tally, cases));
  return { tally, elapsedMs: performance.now() - beganAt, slowest, failings };
}

function reportOf({
  seed,
  counterexample,
  counterexamplePath,
  errorInstance,
  numShrinks,
}: fc.RunDetails<[Case]>): string {
  const why = errorInstance instanceof Error ? errorInstance.message : String(errorInstance);
  return [
    `${why}\n  ${counterexample?.map(String).join()}`,
    `  (made smaller ${numShrinks} times; again: npm run fuzz -- --seed ${seed} --path ${counterexamplePath})`,
  ].join("\n");
}

/** A run that leaves something out says nothing about it; one in which all is refused, nothing about what is stored. */
export function gapsIn(tally: Tally, cases: number): string[] {
  if (tally.cases < cases) return [`only ${tally.cases} of ${cases} cases were played`];
  if (tally.triedAgain > mostAskedAgain(cases)) {
    return [`in ${cases} cases the service was not ready ${tally.triedAgain} times: it refuses what it could serve`];
  }
  if (cases < enough) return [];
  return [
    ...operations.filter(({ name }) => !tally.byOperation.has(name)).map(({ name }) => `${name} was never called`),
    ...operations
      .filter(({ name }) => !tally.acceptedByOperation.has(name))
      .map(({ name }) => `${name} was never accepted`),
    ...protocolNames.filter((name) => !tally.byProtocol.has(name)).map((name) => `nothing came through ${name}`),
    ...kinds.filter(({ name }) => !tally.byKind.has(name)).map(({ name }) => `there was nothing of the kind "${name}"`),
    ...(tally.accepted < cases / 5 ? [`only ${tally.accepted} of ${cases} cases were accepted`] : []),
    ...(tally.repeated < cases / 1_000 ? [`only ${tally.repeated} of ${cases} cases were repeated`] : []),
    ...(tally.readBack < cases / 20 ? [`only ${tally.readBack} of ${cases} cases were read back`] : []),
  ];
}

/** What the prototypes that all objects share look like. */
function prototypes(): string {
  return [Object, Array, Function, String, Number]
    .map(({ prototype }) => Reflect.ownKeys(prototype).map(String).join())
    .join("\n");
}
