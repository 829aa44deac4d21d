import { setTimeout as sleep } from "node:timers/promises";
import type { CallResult } from "../../support/clients/low-cost/client.js";
import type { Request } from "../../support/clients/low-cost/request.js";
import type { Subject } from "./checker.js";
import type { Random } from "./random.js";
import { add, type Tally } from "./tally.js";
import type { ReplicaClients } from "./traffic.js";

/** Sends changes, each attempt over a random protocol to a random replica. */
export interface Writer {
  readonly random: Random;
  /** False once the round is over. */
  writing(): boolean;
  /**
   * Sends a request that writes a value to a register of a subject, and records the outcome.
   *
   * @param refusal an error code that a correct service may return, too
   */
  write(subject: Subject, register: string, value: string, request: Request, refusal?: string): Promise<WriteOutcome>;
  /** Creates something, and retries until it succeeds. Undefined when the round is over. */
  create(request: Request): Promise<Fields | undefined>;
  pause(lowMs: number, highMs: number): Promise<void>;
  /** Counts why a subject is no longer changed. */
  retire(why: string): void;
}

export type Fields = Readonly<Record<string, unknown>>;

export type WriteOutcome =
  | { readonly kind: "acknowledged"; readonly fields: Fields }
  | { readonly kind: "not applied" }
  | { readonly kind: "unknown" };

export function createWriter(
  replicaClients: readonly ReplicaClients[],
  tally: Tally,
  faultsActiveSince: (begin: number) => readonly string[],
  random: Random,
  writing: () => boolean,
): Writer {
  function send(request: Request): Promise<CallResult> {
    const client = random.pick(random.pick(replicaClients).clients);
    return new Promise((resolve) => client.call(request, resolve));
  }

  return {
    random,
    writing,

    async write(subject, register, value, request, refusal) {
      const begin = performance.now();
      const pending = subject.registers[register]?.write(value, begin);
      const result = await send(request);
      const end = performance.now();
      const outcome = outcomeOf(result);
      if (outcome.kind === "acknowledged") {
        pending?.acknowledged(end);
        tally.writesAcknowledged++;
        if (request.operation === "disableWorkspace")
          tally.disables.push({ ms: end - begin, under: faultsActiveSince(begin) });
      } else if (outcome.kind === "unknown") pending?.unknown(end);
      else pending?.notApplied();
      add(tally.writes, `${request.operation}, ${outcome.kind}`);
      if (result.kind === "refused" && result.code !== refusal)
        add(tally.unexpected, `${request.operation}: ${result.code}`);
      return outcome;
    },

    async create(request) {
      while (writing()) {
        const result = await send(request);
        if (result.kind === "success") return result.fields;
        await sleep(100);
      }
      return undefined;
    },

    pause: (lowMs, highMs) => sleep(random.between(lowMs, highMs)),
    retire: (why) => add(tally.retired, why),
  };
}

function outcomeOf(result: CallResult): WriteOutcome {
  if (result.kind === "success") return { kind: "acknowledged", fields: result.fields };
  // An error of the catalogue means that the change was not applied.
  return { kind: result.kind === "unavailable" ? "unknown" : "not applied" };
}
