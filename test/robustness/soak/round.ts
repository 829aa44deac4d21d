import { setTimeout as sleep } from "node:timers/promises";
import { openSql } from "../../../commands/open-sql.js";
import { type OperationName, operations } from "../../support/operations.js";
import { openOwnPostgres } from "../../support/own-postgres.js";
import { openProxy } from "../../support/proxy.js";
import { createRandom } from "../../verification/faults/random.js";
import { startRedis } from "../../verification/faults/redis-server.js";
import { type Load, startLoad, type Tally } from "./load.js";
import { createFixture, fillCaches } from "./scene.js";
import { type Leak, type ProcessSample, type SoakedService, startSoaked } from "./service.js";
import { classifyTrend, type MemoryName, memories, failingsOf as memoryFailingsOf, type Trend } from "./trend.js";

export interface RoundOptions {
  readonly seconds: number;
  /** The maximum duration if memory is not flat earlier. Omitted: `seconds`. */
  readonly maxSeconds?: number;
  readonly seed: number;
  /** Whether Redis is disconnected and PostgreSQL restarted from time to time, in a middle part. */
  readonly faults: boolean;
  /** A deliberate leak of the service, to test its detection. */
  readonly leak: Leak;
  /** Whether bounded caches are filled first. Otherwise a round shows little about the heap. */
  readonly fill: boolean;
  readonly shouldStop?: () => boolean;
  readonly say?: (text: string) => void;
}

/** A measurement of the service, with its time. */
export interface Sample extends ProcessSample {
  readonly seconds: number;
  readonly calls: number;
}

/** The result of a round. */
export interface RoundResult {
  readonly seconds: number;
  readonly tally: Tally;
  readonly faults: number;
  readonly samples: readonly Sample[];
  readonly before: ProcessSample;
  readonly after: IdleSample;
  readonly memory: Readonly<Record<MemoryName, Trend>>;
  /** Why the round fails. Empty if it passes. */
  readonly failings: readonly string[];
}

/** The resources of the service without load. */
export interface IdleSample extends ProcessSample {
  readonly sessions: number;
  readonly busy: number;
  readonly waiting: number;
}

/** The sessions of PostgreSQL: those of the pool, those that spend credits, and the one of the change poller. */
const maxSessions = 10 + 3 + 1;

/** One connection to Redis, and two of the client that reads the metrics. PostgreSQL is reached by a Unix socket. */
const maxSockets = 3;

/** The number of samples. Each one interrupts the service, because it collects garbage several times. */
const samplesPerRound = 120;
const minSampleIntervalMs = 2_000;

/** Starts PostgreSQL, Redis and the service, and runs the service under load. */
export async function runRound(options: RoundOptions): Promise<RoundResult> {
  const { say = () => {}, shouldStop = () => false, maxSeconds = options.seconds } = options;
  const undo: (() => unknown)[] = [];
  try {
    say("starting PostgreSQL, Redis and the service");
    const postgres = await openOwnPostgres();
    undo.push(postgres.close);
    const redis = await startRedis();
    undo.push(redis.kill);
    const redisProxy = await openProxy(redis.url);
    undo.push(redisProxy.close);
    const service = await startSoaked(postgres.url, redisProxy.url, options.leak);
    undo.push(service.stop);
    const fixture = await createFixture(service);
    if (options.fill) {
      say("filling the caches");
      await fillCaches(postgres.url, service, fixture);
    }

    const before = await service.sample();
    const load = startLoad(service, fixture, createRandom(options.seed));
    const startedAt = performance.now();
    const elapsed = () => (performance.now() - startedAt) / 1_000;
    const samples: Sample[] = [];
    let faults = 0;
    let injecting: Promise<void> | undefined;

    async function injectFault(): Promise<void> {
      load.faultActive = true;
      faults += 1;
      if (faults % 2 === 0) await postgres.restart("fast");
      else redisProxy.cut();
      await sleep(2_000);
      redisProxy.resume();
      await sleep(8_000); // until the clients and the waiting statements have recovered
      load.faultActive = false;
      await sleep(2_000);
      injecting = undefined;
    }

    const shouldContinue = () => elapsed() < options.seconds || (elapsed() < maxSeconds && !isFlat(samples));
    while (shouldContinue() && !shouldStop() && !service.ended()) {
      await sleep(Math.max((options.seconds * 1_000) / samplesPerRound, minSampleIntervalMs));
      samples.push({ seconds: elapsed(), calls: load.tally.calls, ...(await service.sample()) });
      say(progressOf(samples, options.seconds, load));
      const share = elapsed() / options.seconds;
      if (options.faults && share > 0.2 && share < 0.45) injecting ??= injectFault();
    }
    await injecting;
    await load.stop();
    say("waiting until the service is idle");
    const seconds = elapsed();
    const after = await awaitIdle(postgres.url, service);
    const memory = {
      heap: classifyTrend("heap", samples),
      external: classifyTrend("external", samples),
      resident: classifyTrend("resident", samples),
    };
    const found = { seconds, tally: load.tally, faults, samples, before, after, memory };
    return { ...found, failings: failingsOf(found, service) };
  } finally {
    for (const step of undo.reverse()) await step();
  }
}

/**
 * On a slow machine, the calls of the requested time may be too few to exclude a leak, or to compile the code in the
 * first half of them; then memory grows in the second half. A real leak does not become flat by waiting.
 */
function isFlat(samples: readonly Sample[]): boolean {
  const names = Object.keys(memories) as MemoryName[];
  return names.every((name) => !memories[name].mustBeClear || classifyTrend(name, samples).kind === "flat");
}

function progressOf(samples: readonly Sample[], seconds: number, { tally, faultActive }: Load): string {
  const last = samples.at(-1);
  if (last === undefined) return "";
  const unexpected = [...tally.unexpected.values()].reduce((sum, count) => sum + count, 0);
  const parts = [
    `${last.seconds.toFixed(0)} of ${seconds.toFixed(0)} s`,
    `${last.calls} calls (${(last.calls / last.seconds).toFixed(0)}/s)`,
    `heap ${mib(last.heapBytes)} MiB`,
    `external ${mib(last.externalBytes)} MiB`,
    `resident ${mib(last.rssBytes)} MiB`,
    `${unexpected} unexpected`,
    ...(faultActive ? ["fault active"] : []),
  ];
  return parts.join(" | ");
}

export function mib(bytes: number): string {
  return (bytes / 1024 / 1024).toFixed(2);
}

/** Retries, because closing connections and storing the times of last use takes a moment. */
async function awaitIdle(databaseUrl: string, service: SoakedService): Promise<IdleSample> {
  const sql = openSql(databaseUrl, { max: 1, onnotice: () => {} });
  try {
    for (let tries = 0; ; tries++) {
      const sample = {
        ...(await service.sample()),
        busy: await service.readMetric("pool_connections", { state: "busy" }),
        waiting: await service.readMetric("pool_waiting_statements"),
        sessions: (await sql`select from pg_stat_activity where application_name = 'latchkey'`).count,
      };
      if (isIdle(sample) || tries === 20) return sample;
      await sleep(500);
    }
  } finally {
    await sql.end();
  }
}

function isIdle({ busy, waiting, sessions, resources }: IdleSample): boolean {
  return busy === 0 && waiting === 0 && sessions <= maxSessions && (resources["TCPSocketWrap"] ?? 0) <= maxSockets;
}

function failingsOf(found: Omit<RoundResult, "failings">, service: SoakedService): string[] {
  const { tally, memory, before, after } = found;
  const failings: string[] = [];
  const fail = (wrong: boolean, sentence: string) => void (wrong && failings.push(sentence));
  const uncalled = (Object.keys(operations) as OperationName[]).filter((name) => !tally.byOperation.has(name));
  const leakedTimers = (after.resources["Timeout"] ?? 0) - (before.resources["Timeout"] ?? 0);
  fail(service.ended(), `the service exited unexpectedly:\n${service.log()}`);
  for (const name of Object.keys(memories) as MemoryName[]) failings.push(...memoryFailingsOf(name, memory[name]));
  for (const [result, count] of tally.unexpected) fail(true, `${count} times ${result}`);
  fail(uncalled.length > 0, `never called: ${uncalled.join(", ")}`);
  fail(tally.aborted === 0, "no call was aborted");
  fail(!isIdle(after), `the service does not become idle: ${JSON.stringify(after)}`);
  fail(after.listeners > before.listeners, `${after.listeners - before.listeners} listeners of the process leaked`);
  fail(leakedTimers > 2, `${leakedTimers} timers leaked`);
  return failings;
}
