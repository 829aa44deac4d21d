/** A seeded random generator: the same seed gives the same choices. */
export interface Random {
  /** At least `low`, below `high`. */
  between(low: number, high: number): number;
  /** True with this probability. */
  chance(probability: number): boolean;
  pick<T>(from: readonly T[]): T;
  shuffle<T>(items: readonly T[]): T[];
  /** An independent generator, so that the choices of one component do not depend on the timing of another. */
  fork(): Random;
}

/** Mulberry32: 32 bits of state suffice to choose faults. */
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
      const remaining = [...items];
      return items.flatMap(() => remaining.splice(Math.floor(next() * remaining.length), 1));
    },
    fork: () => createRandom(next() * 2 ** 32),
  };
  return random;
}
