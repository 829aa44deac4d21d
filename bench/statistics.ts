/** The distribution of a figure that was measured several times. */
export interface Spread {
  readonly median: number;
  readonly min: number;
  readonly max: number;
}

export function spreadOf(values: readonly number[]): Spread {
  const sorted = values.toSorted((a, b) => a - b);
  const at = (index: number) => sorted[index] ?? Number.NaN;
  const middle = (sorted.length - 1) / 2;
  return {
    median: (at(Math.floor(middle)) + at(Math.ceil(middle))) / 2,
    min: at(0),
    max: at(sorted.length - 1),
  };
}

/** The ratios of neighbouring rounds. A slow period of the machine affects both rounds of a pair and cancels out. */
export function pairRatios(ours: readonly number[], theirs: readonly number[]): Spread {
  if (ours.length !== theirs.length) throw new Error("the rounds are not in pairs");
  return spreadOf(ours.map((value, index) => value / (theirs[index] ?? Number.NaN)));
}

/** The value below which this fraction of the values lies. */
export function percentile(values: readonly number[], fraction: number): number {
  // Typed arrays sort many times as fast. A verifier that sorts for long loses its grant.
  const sorted = Float64Array.from(values).sort();
  return sorted[Math.min(sorted.length - 1, Math.floor(fraction * sorted.length))] ?? Number.NaN;
}
