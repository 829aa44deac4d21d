import { type Call, callsOf } from "./calls.js";
import type { Random } from "./random.js";
import type { KeySubject, WorkspaceSubject } from "./subjects.js";
import type { CallSource } from "./traffic.js";

/** The subjects that calls are made about. */
export interface Population extends CallSource {
  /** From now on calls are made about it. Returns how to end that. */
  admit(about: WorkspaceSubject | KeySubject): () => void;
}

export function createPopulation(random: Random): Population {
  const callsBySubject: (readonly Call[])[] = [];
  return {
    admit(about) {
      const calls = callsOf(about);
      callsBySubject.push(calls);
      return () => void callsBySubject.splice(callsBySubject.indexOf(calls), 1);
    },
    next: () => (callsBySubject.length === 0 ? undefined : random.pick(random.pick(callsBySubject))),
  };
}
