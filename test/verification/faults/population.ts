import { type Call, callsOf, delayedCallsOf } from "./calls.js";
import type { Random } from "./random.js";
import type { KeySubject, WorkspaceSubject } from "./subjects.js";
import type { CallSource } from "./traffic.js";

/** The subjects that clients make calls about. */
export interface Population extends CallSource {
  /** Starts calls about the subject. Returns a function that stops them. */
  add(about: WorkspaceSubject | KeySubject): () => void;
  /** A call to send with a delayed body. */
  nextDelayed(): Call | undefined;
  /** The subjects of current calls. */
  present(): (WorkspaceSubject | KeySubject)[];
  /** The same, and those that were removed recently. */
  recent(): (WorkspaceSubject | KeySubject)[];
  /** The subject that this key belongs to, also after it was removed. */
  ownerOf(keyId: string): WorkspaceSubject | KeySubject | undefined;
}

/** How long a removed subject counts as recent. */
const recentMs = 15_000;

interface Member {
  readonly about: WorkspaceSubject | KeySubject;
  readonly calls: readonly Call[];
  readonly delayed: readonly Call[];
}

export function createPopulation(random: Random): Population {
  const present: Member[] = [];
  let removed: { readonly about: WorkspaceSubject | KeySubject; readonly at: number }[] = [];
  const byKeyId = new Map<string, WorkspaceSubject | KeySubject>();
  return {
    add(about) {
      const member = { about, calls: callsOf(about), delayed: delayedCallsOf(about) };
      present.push(member);
      byKeyId.set(about.keyId, about);
      return () => {
        present.splice(present.indexOf(member), 1);
        const now = performance.now();
        removed = [...removed.filter(({ at }) => at > now - recentMs), { about, at: now }];
      };
    },
    present: () => present.map(({ about }) => about),
    recent: () => [...present, ...removed].map(({ about }) => about),
    next: () => (present.length === 0 ? undefined : random.pick(random.pick(present).calls)),
    nextDelayed: () => (present.length === 0 ? undefined : random.pick(random.pick(present).delayed)),
    ownerOf: (keyId) => byKeyId.get(keyId),
  };
}
