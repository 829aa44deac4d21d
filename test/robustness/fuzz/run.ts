import fc from "fast-check";
import { openRawClient } from "../../support/clients/raw-client.js";
import { protocolNames } from "../../support/clients/raw-request.js";
import { anyCase, type Case } from "./cases.js";
import { kinds } from "./kinds.js";
import { operations } from "./operations.js";
import { watchCases } from "./slow-cases.js";
import { findMisstored } from "./stored.js";
import { createTally, type Tally } from "./tally.js";
import { type Ledger, maxAttempts, openWorker } from "./worker.js";

/** The service under test. */
export interface Subject {
  readonly httpUrl: string;
  readonly grpcAddress: string;
  readonly databaseUrl: string;
  readonly operatorKey: string;
}

export interface RunOptions {
  readonly seed: number;
  readonly cases: number;
  /** Replays one case: the path that was reported with its seed. */
  readonly path?: string | undefined;
  readonly progress?: (tally: Tally) => void;
}

/** The result of a run. */
export interface Run {
  readonly tally: Tally;
  readonly elapsedMs: number;
  /** How long the slowest case blocked the event loop, in units of a reference work on the same machine. */
  readonly slowest: number;
  /** Errors of the service or of the run itself. Empty if there are none. */
  readonly failings: readonly string[];
}

/** Cases in flight. */
const workers = 32;

/** Attempts to shrink a failed case. */
const maxShrinkAttempts = 100;

/** With at least this many cases, every operation, protocol and kind must occur. */
const minCasesForCoverage = 10_000;

/**
 * The maximum of retries because the service was unavailable. If a busy machine pauses the service for a second, every
 * worker retries up to four times, however few cases that second would have had. The limit allows one such pause, and a
 * tenth of the cases for more pauses in a longer run. On two cores with five times their load, there were no retries. A
 * service that refuses one call in four without reason exceeds the limit in the shortest run.
 */
const maxRetries = (cases: number) => workers * (maxAttempts - 1) + cases / 10;

/** Sends this many cases to the service and reports every response that violates its contract. */
export async function runFuzz(subject: Subject, { seed, cases, path, progress }: RunOptions): Promise<Run> {
  const startedAt = performance.now();
  const tally = createTally();
  const ledger: Ledger = new Map();
  const slowCases = watchCases(openRawClient(subject));
  const { client } = slowCases;
  const prototypesBefore = prototypes();
  const generatedCases = anyCase();
  const failings: string[] = [];
  let slowest = 0;
  /** The worker that has found an error. */
  let failedWorker: number | undefined;

  async function runWorker(index: number): Promise<void> {
    const worker = await openWorker({ client, operatorKey: subject.operatorKey, ledger, tally });
    let shrinkAttempts = 0;
    let caseNumber = 0;
    const property = fc.asyncProperty(generatedCases, async (testCase) => {
      const replay = `replay: npm run fuzz -- --seed ${seed + index} --path ${path ?? caseNumber++}`;
      // While another worker shrinks its failed case, this one skips its cases.
      if (failedWorker !== undefined && (failedWorker !== index || ++shrinkAttempts > maxShrinkAttempts)) return;
      try {
        await worker.run(testCase);
      } catch (error) {
        failedWorker = index;
        throw error;
      } finally {
        if (testCase.raw !== undefined) slowCases.name(testCase.raw, replay);
      }
      progress?.(tally);
    });
    const details = await fc.check(property, {
      seed: seed + index,
      numRuns: path === undefined ? Math.ceil(cases / workers) : 1,
      ...(path !== undefined && { path }),
    });
    if (details.failed) failings.push(reportOf(details));
  }

  try {
    await Promise.all(Array.from({ length: path === undefined ? workers : 1 }, (_, index) => runWorker(index)));
    failings.push(...(await findMisstored(subject.databaseUrl, ledger)).slice(0, 10));
    // Last, because cases that are sent again are not in the ledger.
    const slow = await slowCases.confirm();
    slowest = slow.slowest;
    failings.push(...slow.failings.slice(0, 10));
  } finally {
    client.close();
  }
  if (prototypes() !== prototypesBefore) failings.push("a prototype was changed");
  if (failings.length === 0 && path === undefined) failings.push(...gapsIn(tally, cases));
  return { tally, elapsedMs: performance.now() - startedAt, slowest, failings };
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
    `  (shrunk ${numShrinks} times; replay: npm run fuzz -- --seed ${seed} --path ${counterexamplePath})`,
  ].join("\n");
}

/**
 * Finds gaps in a run. A run proves nothing about inputs that it left out, and nothing about storage if all its
 * cases were refused.
 */
export function gapsIn(tally: Tally, cases: number): string[] {
  if (tally.cases < cases) return [`only ${tally.cases} of ${cases} cases were run`];
  if (tally.triedAgain > maxRetries(cases)) {
    const count = `in ${cases} cases the service was unavailable ${tally.triedAgain} times`;
    return [`${count}: it refuses requests that it could serve`];
  }
  if (cases < minCasesForCoverage) return [];
  return [
    ...operations.filter(({ name }) => !tally.byOperation.has(name)).map(({ name }) => `${name} was never called`),
    ...operations
      .filter(({ name }) => !tally.acceptedByOperation.has(name))
      .map(({ name }) => `${name} was never accepted`),
    ...protocolNames.filter((name) => !tally.byProtocol.has(name)).map((name) => `nothing was sent over ${name}`),
    ...kinds.filter(({ name }) => !tally.byKind.has(name)).map(({ name }) => `there was no case of the kind "${name}"`),
    ...(tally.accepted < cases / 5 ? [`only ${tally.accepted} of ${cases} cases were accepted`] : []),
    ...(tally.repeated < cases / 1_000 ? [`only ${tally.repeated} of ${cases} cases were retried`] : []),
    ...(tally.readBack < cases / 20 ? [`only ${tally.readBack} of ${cases} cases were read back`] : []),
  ];
}

/** The property names of the built-in prototypes. */
function prototypes(): string {
  return [Object, Array, Function, String, Number]
    .map(({ prototype }) => Reflect.ownKeys(prototype).map(String).join())
    .join("\n");
}
