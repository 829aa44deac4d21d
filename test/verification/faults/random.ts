/** Chance that can be repeated: the same seed gives the same choices. */
export interface Random {
  /** At least `low`, below `high`. */
  between(low: number, high: number): number;
  /** True with this probability. */
  chance(probability: number): boolean;
  pick<T>(from: readonly T[]): T;
  shuffle<T>(items: readonly T[]): T[];
  /** Chance of its own for a part of the laboratory, so that one part's choices do not hang on another's timing. */
  fork(): Random;
}

/** Mulberry32: 32 bits of state are plenty for choosing faults. */
export function createRandom(seed: number): Random {
  let state = seed >>> 0;
  const next = () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };

  const random: Random = {
    between: (low, high) => low + next() * (high - low),
    chance: (probability) => next() < probability,
    pick: <T>(from: readonly T[]) => from[Math.floor(next() * from.length)] as T,
    shuffle(items) {
      const left = [...items];
      return items.flatMap(() => left.splice(Math.floor(next() * left.length), 1));
    },
    fork: () => createRandom(next() * 2 ** 32),
  };
  return random;
}
