/** The periods in which one replica was suspended with its clocks stopped, and how the checker dates calls to it. */
export interface Suspends {
  began(at: number): void;
  /** From this moment on, the replica must apply the changes that were acknowledged during the suspend. */
  ended(at: number): void;
  /**
   * The begin that the checker uses for a call. A resumed replica cannot know that it was suspended before it has
   * queried Postgres again. Until then, a call counts as begun before the suspend.
   */
  effectiveBegin(begin: number): number;
}

/** No checked call began longer ago. */
const retentionMs = 30_000;

export function createSuspends(): Suspends {
  let periods: { readonly from: number; until: number }[] = [];
  return {
    began(at) {
      periods = [...periods.filter(({ until }) => until > at - retentionMs), { from: at, until: Infinity }];
    },
    ended(at) {
      const last = periods.at(-1);
      if (last !== undefined) last.until = at;
    },
    effectiveBegin: (begin) => periods.find(({ from, until }) => from <= begin && begin < until)?.from ?? begin,
  };
}
