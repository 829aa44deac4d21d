import { type Call, callsOf, lateCallsOf } from "./calls.js";
import type { Random } from "./random.js";
import type { KeySubject, WorkspaceSubject } from "./subjects.js";
import type { CallSource } from "./traffic.js";

/** The subjects that calls are made about. */
export interface Population extends CallSource {
  /** From now on calls are made about it. Returns how to end that. */
  admit(about: WorkspaceSubject | KeySubject): () => void;
  /** A call whose body is to be held back. */
  nextLate(): Call | undefined;
  /** Whom calls were made about with this key, if ever. */
  ownerOf(keyId: string): WorkspaceSubject | KeySubject | undefined;
}

export function createPopulation(random: Random): Population {
  const present: { readonly calls: readonly Call[]; readonly late: readonly Call[] }[] = [];
  const byKeyId = new Map<string, WorkspaceSubject | KeySubject>();
  return {
    admit(about) {
      const calls = { calls: callsOf(about), late: lateCallsOf(about) };
      present.push(calls);
      byKeyId.set(about.keyId, about);
      return () => void present.splice(present.indexOf(calls), 1);
    },
    next: () => (present.length === 0 ? undefined : random.pick(random.pick(present).calls)),
    nextLate: () => (present.length === 0 ? undefined : random.pick(random.pick(present).late)),
    ownerOf: (keyId) => byKeyId.get(keyId),
  };
}
