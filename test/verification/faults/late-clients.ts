import { setTimeout as sleep } from "node:timers/promises";
import { createDelayedGrpc, delayedConnect, delayedHttp } from "../../support/clients/low-cost/delayed-body.js";
import type { Call } from "./calls.js";
import { checkCall } from "./checker.js";
import type { Random } from "./random.js";
import type { Replica } from "./replica.js";
import { add, recordViolations, type Tally } from "./tally.js";

/**
 * How many calls with a delayed body are in flight: one per `callsPerClient` of the normal calls a second, up to a
 * maximum.
 */
const callsPerClient = 25;
const maxClients = 32;

/** How long a body is delayed. Mostly long enough that a change is acknowledged meanwhile. */
const bodyDelayMs = [0, 1_200] as const;

/** One call in 8 has a deadline that passes before its body is sent. */
const expiredOneIn = 8;
const expiredTimeoutMs = 40;

/**
 * Clients that send the headers of a call first, and its body much later. An accepted call must match the state of its
 * caller after the body was sent. A refused call may have been refused because of its headers.
 */
export function startDelayedClients(
  replicas: readonly Replica[],
  callsPerSecond: number,
  source: { nextDelayed(): Call | undefined },
  tally: Tally,
  activeFaults: () => readonly string[],
  faultsActiveSince: (begin: number) => readonly string[],
  random: Random,
): { stop(): Promise<void> } {
  const senders = [delayedHttp, delayedConnect, createDelayedGrpc()];
  let stopped = false;

  async function callOnce(): Promise<void> {
    const call = source.nextDelayed();
    if (call === undefined) return sleep(50);
    if (random.chance(1 / expiredOneIn)) return callWithExpiredDeadline(call);
    const sender = random.pick(senders);
    const replica = random.pick(replicas);
    const headersSentAt = performance.now();
    const { result, bodySentAt } = await sender.send(replica, call.request, random.between(...bodyDelayMs));
    const end = performance.now();
    if (stopped) return;
    if (result.kind === "unavailable" || result.kind === "unsent") return countUnavailable(result);
    const { outcome, observations } = call.read(result);
    add(tally.delayedResults, outcome);
    if (observations === undefined)
      return add(tally.unexpected, `${call.request.operation} with a delayed body: ${outcome}`);
    const begin = replica.suspends.effectiveBegin(result.kind === "success" ? bodySentAt : headersSentAt);
    const route = `over ${sender.name} on ${replica.describe()}`;
    const label = `${call.request.operation} with a delayed body ${route}: ${outcome}`;
    recordViolations(tally, checkCall({ begin, end, label }, observations), activeFaults());
  }

  /** Excludes plain HTTP, which has no deadline header. */
  async function callWithExpiredDeadline({ request }: Call): Promise<void> {
    const sender = random.pick(senders.filter(({ name }) => name !== "http"));
    const begin = performance.now();
    const delayMs = random.between(20 * expiredTimeoutMs, 30 * expiredTimeoutMs);
    const { result } = await sender.send(random.pick(replicas), request, delayMs, expiredTimeoutMs);
    if (stopped) return;
    // A replica that was frozen meanwhile may have read headers and body together. By its clock, no time has passed.
    const wasRunning = !faultsActiveSince(begin).some((name) => name.startsWith("replica"));
    if (result.kind === "success" && wasRunning)
      add(tally.unexpected, `${request.operation}: accepted after its deadline`);
    if (result.kind === "unavailable" && result.why === "deadline_exceeded") tally.refusedAfterDeadline++;
  }

  async function countUnavailable(result: { kind: "unavailable"; why: string } | { kind: "unsent" }): Promise<void> {
    add(tally.unavailable, result.kind === "unsent" ? "not connected" : `delayed body: ${result.why}`);
    await sleep(50);
  }

  async function run(): Promise<void> {
    while (!stopped) await callOnce();
  }

  const clients = Math.min(maxClients, Math.ceil(callsPerSecond / callsPerClient));
  const running = Array.from({ length: clients }, run);
  return {
    async stop() {
      stopped = true;
      await Promise.all(running);
      for (const sender of senders) sender.close();
    },
  };
}
