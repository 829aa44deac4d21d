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
  /** Those that calls are made about, or were not long ago. */
  recent(): (WorkspaceSubject | KeySubject)[];
  /** Whom calls were made about with this key, if ever. */
  ownerOf(keyId: string): WorkspaceSubject | KeySubject | undefined;
}

/** How long one that left is still looked at, at times. */
const recentMs = 15_000;

interface Member {
  readonly about: WorkspaceSubject | KeySubject;
  readonly calls: readonly Call[];
  readonly late: readonly Call[];
}

export function createPopulation(random: Random): Population {
  const present: Member[] = [];
  let left: { readonly about: WorkspaceSubject | KeySubject; readonly at: number }[] = [];
  const byKeyId = new Map<string, WorkspaceSubject | KeySubject>();
  return {
    admit(about) {
      const member = { about, calls: callsOf(about), late: lateCallsOf(about) };
      present.push(member);
      byKeyId.set(about.keyId, about);
      return () => {
        present.splice(present.indexOf(member), 1);
        const now = performance.now();
        left = [...left.filter(({ at }) => at > now - recentMs), { about, at: now }];
      };
    },
    recent: () => [...present, ...left].map(({ about }) => about),
    next: () => (present.length === 0 ? undefined : random.pick(random.pick(present).calls)),
    nextLate: () => (present.length === 0 ? undefined : random.pick(random.pick(present).late)),
    ownerOf: (keyId) => byKeyId.get(keyId),
  };
}
