import { setTimeout as sleep } from "node:timers/promises";
import type { Answer } from "./answer.js";
import type { Subject } from "./checker.js";
import type { Random } from "./random.js";
import type { Request } from "./request.js";
import { add, type Tally } from "./tally.js";
import type { Entrance } from "./traffic.js";

/** One who changes things, through a protocol and on a replica chosen anew for each attempt. */
export interface Writer {
  readonly random: Random;
  /** False once the round is over. */
  writing(): boolean;
  /**
   * Writes a value into a register of a subject by this request, and says how that ended.
   *
   * @param refusal one that a sound service may give, too
   */
  write(subject: Subject, register: string, value: string, request: Request, refusal?: string): Promise<WriteOutcome>;
  /** Makes something new, however often it takes. Undefined when the round is over. */
  create(request: Request): Promise<Fields | undefined>;
  pause(lowMs: number, highMs: number): Promise<void>;
  /** Counts why a subject is not written any more. */
  retire(why: string): void;
}

export type Fields = Readonly<Record<string, unknown>>;

export type WriteOutcome =
  | { readonly kind: "acknowledged"; readonly fields: Fields }
  | { readonly kind: "not applied" }
  | { readonly kind: "unknown" };

export function createWriter(
  entrances: readonly Entrance[],
  tally: Tally,
  faultsSince: (begin: number) => readonly string[],
  random: Random,
  writing: () => boolean,
): Writer {
  function ask(request: Request): Promise<Answer> {
    const protocol = random.pick(random.pick(entrances).protocols);
    return new Promise((resolve) => protocol.call(request, resolve));
  }

  return {
    random,
    writing,

    async write(subject, register, value, request, refusal) {
      const begin = performance.now();
      const underWay = subject.registers[register]?.write(value, begin);
      const answer = await ask(request);
      const end = performance.now();
      const outcome = outcomeOf(answer);
      if (outcome.kind === "acknowledged") {
        underWay?.acknowledged(end);
        tally.writesAcknowledged++;
        if (request.operation === "disableWorkspace")
          tally.disables.push({ ms: end - begin, under: faultsSince(begin) });
      } else if (outcome.kind === "unknown") underWay?.unknown(end);
      else underWay?.notApplied();
      add(tally.writes, `${request.operation}, ${outcome.kind}`);
      if (answer.kind === "refused" && answer.code !== refusal)
        add(tally.unexpected, `${request.operation}: ${answer.code}`);
      return outcome;
    },

    async create(request) {
      while (writing()) {
        const answer = await ask(request);
        if (answer.kind === "success") return answer.fields;
        await sleep(100);
      }
      return undefined;
    },

    pause: (lowMs, highMs) => sleep(random.between(lowMs, highMs)),
    retire: (why) => add(tally.retired, why),
  };
}

function outcomeOf(answer: Answer): WriteOutcome {
  if (answer.kind === "success") return { kind: "acknowledged", fields: answer.fields };
  // A refusal of the catalogue comes before the change, or instead of it.
  return { kind: answer.kind === "unavailable" ? "unknown" : "not applied" };
}
