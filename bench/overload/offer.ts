import { setTimeout as sleep } from "node:timers/promises";
import { createClosedLoop } from "../load/load.js";

/** The result of an offered load. */
export interface Offered {
  readonly seconds: number;
  /** Latency of each served call in milliseconds, from its due time. */
  readonly served: readonly number[];
  readonly refused: number;
  /** The maximum delay of a call after its due time, in milliseconds. It shows other load on the machine. */
  readonly maxDelayMs: number;
}

/** Clients that call one operation of a service. */
export interface Clients {
  /** Makes a call and reports its end: served, or properly refused. */
  call(onEnd: (served: boolean) => void): void;
  /** The first response that is neither. */
  readonly failure: Error | undefined;
  close(): void;
}

/** Timeout for the next response after all calls were made. How long all of them take depends on the machine. */
const nextResponseTimeoutMs = 10_000;

/**
 * Calls at this rate for this many seconds, regardless of the responses. The first second is not counted, because a
 * queue may still be forming.
 */
export async function offer(clients: Clients, callsPerSecond: number, seconds: number): Promise<Offered> {
  const served: number[] = [];
  let refused = 0;
  let inFlight = 0;
  let maxDelayMs = 0;
  const startedAt = performance.now();
  let progressAt = startedAt;
  const countedFrom = startedAt + 1_000;
  const calls = Math.round(callsPerSecond * (seconds + 1));

  function call(due: number): void {
    inFlight++;
    clients.call((wasServed) => {
      inFlight--;
      progressAt = performance.now();
      if (due < countedFrom) return;
      if (wasServed) served.push(progressAt - due);
      else refused++;
    });
  }

  for (let called = 0; called < calls && !clients.failure; ) {
    const now = performance.now();
    for (; called < calls; called++) {
      const due = startedAt + (called / callsPerSecond) * 1_000;
      if (due > now) break;
      if (due >= countedFrom) maxDelayMs = Math.max(maxDelayMs, performance.now() - due);
      call(due);
    }
    await sleep(1);
  }
  progressAt = performance.now();
  while (inFlight > 0 && !clients.failure) {
    if (performance.now() > progressAt + nextResponseTimeoutMs)
      throw new Error(`${inFlight} calls received no response`);
    await sleep(5);
  }
  if (clients.failure) throw clients.failure;
  return { seconds, served, refused, maxDelayMs };
}

/** A closed loop: keeps `width` calls in flight, each response followed by the next call. */
export async function keepBusy(clients: Clients, width: number, seconds: number): Promise<Offered> {
  const loop = createClosedLoop();
  const served: number[] = [];
  let refused = 0;
  function call(): void {
    const calledAt = performance.now();
    clients.call((wasServed) => {
      if (wasServed) served.push(performance.now() - calledAt);
      else refused++;
      if (loop.succeeded()) call();
    });
  }
  const run = await loop.run(seconds, width, () => {
    for (let started = 0; started < width; started++) call();
  });
  if (clients.failure) throw clients.failure;
  return { seconds: run.seconds, served, refused, maxDelayMs: 0 };
}
