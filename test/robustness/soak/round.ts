import { setTimeout as sleep } from "node:timers/promises";
import { openSql } from "../../../commands/open-sql.js";
import { type OperationName, operations } from "../../contract/operations.js";
import { openOwnPostgres } from "../../support/own-postgres.js";
import { openProxy } from "../../support/proxy.js";
import { createRandom } from "../../verification/faults/random.js";
import { startRedis } from "../../verification/faults/redis-server.js";
import { judge, type MemoryName, memories, failingsOf as memoryFailingsOf, type Verdict } from "./judge.js";
import { type Load, startLoad, type Tally } from "./load.js";
import { fillToTheBrim, makeScene } from "./scene.js";
import { type Leak, type ProcessSample, type SoakedService, startSoaked } from "./service.js";

export interface RoundOptions {
  readonly seconds: number;
  /** For how long it goes on until memory is flat. Left out: no longer than asked. */
  readonly mostSeconds?: number;
  readonly seed: number;
  /** Whether Redis is cut off and PostgreSQL restarted now and then, in a middle part. */
  readonly faults: boolean;
  /** Kept by the service for every 100 requests, to see that this is found. */
  readonly leak: Leak;
  /** Whether what is bounded is filled first. Without, a round says little of the heap. */
  readonly fill: boolean;
  readonly enough?: () => boolean;
  readonly say?: (text: string) => void;
}

/** A look into the service, and when it was. */
export interface Sample extends ProcessSample {
  readonly seconds: number;
  readonly calls: number;
}

/** What a round has found. */
export interface RoundResult {
  readonly seconds: number;
  readonly tally: Tally;
  readonly faults: number;
  readonly samples: readonly Sample[];
  readonly before: ProcessSample;
  readonly after: Rest;
  readonly memory: Readonly<Record<MemoryName, Verdict>>;
  /** Why the round fails, a sentence each; none if it passes. */
  readonly failings: readonly string[];
}

/** What the service uses when nobody calls it. */
export interface Rest extends ProcessSample {
  readonly sessions: number;
  readonly busy: number;
  readonly waiting: number;
}

/** To Postgres: those that calls use, and the one that asks for changes. */
const mostSessions = 11;

/** Those, one to Redis, and two of who reads the metrics. */
const mostSockets = mostSessions + 3;

/** How often is looked. Each look takes the service a moment, in which it collects its garbage several times over. */
const samplesPerRound = 120;
const leastBetweenSamplesMs = 2_000;

/** Runs the service under load for as long as is asked, on a PostgreSQL and a Redis of its own. */
export async function runRound(options: RoundOptions): Promise<RoundResult> {
  const { say = () => {}, enough = () => false, mostSeconds = options.seconds } = options;
  const undo: (() => unknown)[] = [];
  try {
    say("starting");
    const own = await openOwnPostgres();
    undo.push(own.close);
    const redis = await startRedis();
    undo.push(redis.kill);
    const toRedis = await openProxy(redis.url);
    undo.push(toRedis.close);
    const service = await startSoaked(own.url, toRedis.url, options.leak);
    undo.push(service.stop);
    const scene = await makeScene(service);
    if (options.fill) {
      say("filling what is bounded");
      await fillToTheBrim(own.url, service, scene);
    }

    const before = await service.sample();
    const load = startLoad(service, scene, createRandom(options.seed));
    const beganAt = performance.now();
    const elapsed = () => (performance.now() - beganAt) / 1_000;
    const samples: Sample[] = [];
    let faults = 0;
    let bringing: Promise<void> | undefined;

    async function bringFault(): Promise<void> {
      load.faultOn = true;
      faults += 1;
      if (faults % 2 === 0) await own.restart("fast");
      else toRedis.cut();
      await sleep(2_000);
      toRedis.resume();
      await sleep(8_000); // the story goes on, and statements that waited are answered
      load.faultOn = false;
      await sleep(2_000);
      bringing = undefined;
    }

    const isTooShort = () => elapsed() < options.seconds || (elapsed() < mostSeconds && !isFlat(samples));
    while (isTooShort() && !enough() && !service.ended()) {
      await sleep(Math.max((options.seconds * 1_000) / samplesPerRound, leastBetweenSamplesMs));
      samples.push({ seconds: elapsed(), calls: load.tally.calls, ...(await service.sample()) });
      say(progressOf(samples, options.seconds, load));
      const share = elapsed() / options.seconds;
      if (options.faults && share > 0.2 && share < 0.45) bringing ??= bringFault();
    }
    await bringing;
    await load.stop();
    say("coming to rest");
    const seconds = elapsed();
    const after = await comeToRest(own.url, service);
    const memory = {
      heap: judge("heap", samples),
      external: judge("external", samples),
      resident: judge("resident", samples),
    };
    const found = { seconds, tally: load.tally, faults, samples, before, after, memory };
    return { ...found, failings: failingsOf(found, service) };
  } finally {
    for (const step of undo.reverse()) await step();
  }
}

/**
 * How many calls a slow machine makes in a given time may be too few: to exclude a leak, and for the code to be compiled in
 * the first half of them, without which memory grows in the second. A leak does not become flat by waiting.
 */
function isFlat(samples: readonly Sample[]): boolean {
  const names = Object.keys(memories) as MemoryName[];
  return names.every((name) => !memories[name].mustBeClear || judge(name, samples).kind === "flat");
}

function progressOf(samples: readonly Sample[], seconds: number, { tally, faultOn }: Load): string {
  const last = samples.at(-1);
  if (last === undefined) return "";
  const unexpected = [...tally.unexpected.values()].reduce((sum, count) => sum + count, 0);
  const parts = [
    `${last.seconds.toFixed(0)} of ${seconds.toFixed(0)} s`,
    `${last.calls} calls (${(last.calls / last.seconds).toFixed(0)}/s)`,
    `heap ${mib(last.heapBytes)} MiB`,
    `outside of it ${mib(last.externalBytes)} MiB`,
    `resident ${mib(last.rssBytes)} MiB`,
    `${unexpected} unexpected`,
    ...(faultOn ? ["a fault is on"] : []),
  ];
  return parts.join(" | ");
}

export function mib(bytes: number): string {
  return (bytes / 1024 / 1024).toFixed(2);
}

/** Connections that were just closed, and times of last use, take a moment. */
async function comeToRest(databaseUrl: string, service: SoakedService): Promise<Rest> {
  const sql = openSql(databaseUrl, { max: 1, onnotice: () => {} });
  try {
    for (let tries = 0; ; tries++) {
      const rest = {
        ...(await service.sample()),
        busy: await service.readMetric("pool_connections", { state: "busy" }),
        waiting: await service.readMetric("pool_waiting_statements"),
        sessions: (await sql`select from pg_stat_activity where application_name = 'latchkey'`).count,
      };
      if (isAtRest(rest) || tries === 20) return rest;
      await sleep(500);
    }
  } finally {
    await sql.end();
  }
}

function isAtRest({ busy, waiting, sessions, resources }: Rest): boolean {
  return busy === 0 && waiting === 0 && sessions <= mostSessions && (resources["TCPSocketWrap"] ?? 0) <= mostSockets;
}

function failingsOf(found: Omit<RoundResult, "failings">, service: SoakedService): string[] {
  const { tally, memory, before, after } = found;
  const failings: string[] = [];
  const fail = (wrong: boolean, sentence: string) => void (wrong && failings.push(sentence));
  const uncalled = (Object.keys(operations) as OperationName[]).filter((name) => !tally.byOperation.has(name));
  const timersLeft = (after.resources["Timeout"] ?? 0) - (before.resources["Timeout"] ?? 0);
  fail(service.ended(), `the service ended by itself:\n${service.log()}`);
  for (const name of Object.keys(memories) as MemoryName[]) failings.push(...memoryFailingsOf(name, memory[name]));
  for (const [answer, count] of tally.unexpected) fail(true, `${count} times ${answer}`);
  fail(
    uncalled.some((name) => name !== "createWorkspace"),
    `never called: ${uncalled.join(", ")}`,
  );
  fail(tally.aborted === 0, "no call was aborted");
  fail(!isAtRest(after), `it does not come to rest: ${JSON.stringify(after)}`);
  fail(after.listeners > before.listeners, `${after.listeners - before.listeners} listeners of the process are left`);
  fail(timersLeft > 2, `${timersLeft} timers are left`);
  return failings;
}
