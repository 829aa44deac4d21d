/** Random choices that depend only on the seed, so that a failed schedule can be repeated. */
export interface Dice {
  below(limit: number): number;
  oneIn(many: number): boolean;
  /** Like oneIn, but never in half of all schedules: few long sequences of events complete after a mishap. */
  mishap(many: number): boolean;
  pick<T>(options: readonly [T, ...T[]]): T;
}

/** Mulberry32: a schedule needs a hundred random numbers, which must not take longer than its own steps. */
export function createDice(seed: number): Dice {
  let state = seed | 0;

  function below(limit: number): number {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return Math.floor((((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32) * limit);
  }

  const calm = below(2) === 0;

  return {
    below,
    oneIn: (many) => below(many) === 0,
    mishap: (many) => !calm && below(many) === 0,
    pick: (options) => options[below(options.length)] ?? options[0],
  };
}
