/** When one replica was suspended with its clocks standing still, and how calls on it are judged for that. */
export interface Suspends {
  began(at: number): void;
  /** From this moment on, it obeys what was acknowledged meanwhile. */
  ended(at: number): void;
  /**
   * The moment from which on a call counts as begun. A replica that was suspended cannot know of it before it has asked
   * Postgres again: until then, a call is judged as one that began before.
   */
  countsFrom(begin: number): number;
}

/** No call that is judged began longer ago. */
const memoryMs = 30_000;

export function createSuspends(): Suspends {
  let periods: { readonly from: number; until: number }[] = [];
  return {
    began(at) {
      periods = [...periods.filter(({ until }) => until > at - memoryMs), { from: at, until: Infinity }];
    },
    ended(at) {
      const last = periods.at(-1);
      if (last !== undefined) last.until = at;
    },
    countsFrom: (begin) => periods.find(({ from, until }) => from <= begin && begin < until)?.from ?? begin,
  };
}
