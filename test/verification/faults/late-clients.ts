import { setTimeout as sleep } from "node:timers/promises";
import type { Call } from "./calls.js";
import { judge } from "./checker.js";
import { createLateGrpc, lateConnect, lateHttp } from "./late-senders.js";
import type { Random } from "./random.js";
import type { Replica } from "./replica.js";
import { add, keepViolations, type Tally } from "./tally.js";

/** How many calls are held back at a time: one for so many calls a second beside them, and no more than this. */
const callsPerClient = 25;
const mostClients = 32;

/** For how long a body is held back: mostly until some change was acknowledged. */
const holdsMs = [0, 1_200] as const;

/** One call in so many has a deadline that passes before its body is sent. */
const overdueOneIn = 8;
const overdueTimeoutMs = 40;

/**
 * Clients that send the headers of a call, and its body much later. An acceptance must be explained by how its caller
 * stood after the body was sent; a refusal may have been of the headers.
 */
export function startLateClients(
  replicas: readonly Replica[],
  callsPerSecond: number,
  source: { nextLate(): Call | undefined },
  tally: Tally,
  faultsOn: () => readonly string[],
  faultsSince: (begin: number) => readonly string[],
  random: Random,
): { stop(): Promise<void> } {
  const senders = [lateHttp, lateConnect, createLateGrpc()];
  let stopped = false;

  async function callOnce(): Promise<void> {
    const call = source.nextLate();
    if (call === undefined) return sleep(50);
    if (random.chance(1 / overdueOneIn)) return callOverdue(call);
    const sender = random.pick(senders);
    const replica = random.pick(replicas);
    const headersSentAt = performance.now();
    const { answer, bodySentAt } = await sender.send(replica, call.request, random.between(...holdsMs));
    const end = performance.now();
    if (stopped) return;
    if (answer.kind === "unavailable" || answer.kind === "unsent") return unavailable(answer);
    const { word, observations } = call.read(answer);
    add(tally.lateWords, word);
    if (observations === undefined) return add(tally.unexpected, `late ${call.request.operation}: ${word}`);
    const begin = replica.suspends.countsFrom(answer.kind === "success" ? bodySentAt : headersSentAt);
    const label = `${call.request.operation} with a late body by ${sender.name} on ${replica.describe()}: ${word}`;
    keepViolations(tally, judge({ begin, end, label }, observations), faultsOn());
  }

  /** Not over plain HTTP, which has no word for a deadline. */
  async function callOverdue({ request }: Call): Promise<void> {
    const sender = random.pick(senders.filter(({ name }) => name !== "http"));
    const begin = performance.now();
    const holdMs = random.between(20 * overdueTimeoutMs, 30 * overdueTimeoutMs);
    const { answer } = await sender.send(random.pick(replicas), request, holdMs, overdueTimeoutMs);
    if (stopped) return;
    // A replica that was frozen meanwhile may have read headers and body at once: by its clock, no time has passed.
    const wasAwake = !faultsSince(begin).some((name) => name.startsWith("replica"));
    if (answer.kind === "success" && wasAwake)
      add(tally.unexpected, `${request.operation}: accepted after its deadline`);
    if (answer.kind === "unavailable" && answer.why === "deadline_exceeded") tally.overdue++;
  }

  async function unavailable(answer: { kind: "unavailable"; why: string } | { kind: "unsent" }): Promise<void> {
    add(tally.unavailable, answer.kind === "unsent" ? "not reached" : `late body: ${answer.why}`);
    await sleep(50);
  }

  async function run(): Promise<void> {
    while (!stopped) await callOnce();
  }

  const clients = Math.min(mostClients, Math.ceil(callsPerSecond / callsPerClient));
  const running = Array.from({ length: clients }, run);
  return {
    async stop() {
      stopped = true;
      await Promise.all(running);
      for (const sender of senders) sender.close();
    },
  };
}
