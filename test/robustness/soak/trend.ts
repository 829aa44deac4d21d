/** The memory use after a garbage collection, and the number of calls until then. */
export interface MemorySample {
  readonly calls: number;
  readonly heapBytes: number;
  readonly externalBytes: number;
  readonly rssBytes: number;
}

/** Whether a kind of memory grows with the number of calls. */
export interface Trend {
  /** `unclear`: too few or too noisy samples to exclude a leak of `leakPerCall`. */
  readonly kind: "flat" | "growing" | "unclear";
  /** The slope of the fitted line, and its possible error. */
  readonly bytesPerCall: number;
  readonly uncertainty: number;
}

/** A kind of memory, and what counts as a leak of it. */
interface Memory {
  readonly name: string;
  readonly bytesIn: (sample: MemorySample) => number;
  /** The smallest leak that must be detected, in bytes a call. */
  readonly leakPerCall: number;
  /** The growth without a leak that is tolerated, in bytes a call: compiled code, and the like. */
  readonly tolerated: number;
  /** The normal fluctuation in bytes. A smaller total rise proves nothing. */
  readonly minRise: number;
  /** Whether a round also fails if it cannot exclude a leak. */
  readonly mustBeClear: boolean;
}

/** A leak of 1 KiB in 100 calls must be detected, in objects and in Buffers. */
const exact = { leakPerCall: 1_024 / 100, tolerated: 1_024 / 400, minRise: 0, mustBeClear: true };

/** The allocator decides when it returns freed memory to the system, so only a leak of 1 KiB a call can be detected. */
const rough = { leakPerCall: 1_024, tolerated: 512, minRise: 8 * 2 ** 20, mustBeClear: false };

export const memories = {
  heap: { name: "the heap", bytesIn: ({ heapBytes }) => heapBytes, ...exact },
  external: { name: "external memory", bytesIn: ({ externalBytes }) => externalBytes, ...exact },
  resident: { name: "resident memory", bytesIn: ({ rssBytes }) => rssBytes, ...rough },
} as const satisfies Record<string, Memory>;

export type MemoryName = keyof typeof memories;

/** The number of standard errors of the slope that are added or subtracted for certainty. */
const certainty = 3;

export const rule = `A line is fitted through the second half of the samples. The heap and external memory (Buffers, and
what native code reports) are flat if the line rises by less than ${exact.leakPerCall.toFixed(1)} bytes a call
(1 KiB in 100 calls), also if ${certainty} standard errors of its slope are added. They grow if the line rises by more than
${exact.tolerated.toFixed(1)} bytes a call, also if the errors are subtracted. Otherwise the trend is unclear. The soak is extended up to four times until both are flat,
and then fails. Resident memory does not depend on the calls only. It fails if the line rises by more than
${rough.tolerated} bytes a call in the same way, and by more than ${rough.minRise / 2 ** 20} MiB in total.`;

/** Uses the second half of the samples, because caches fill and code is compiled in the first half. */
export function classifyTrend(name: MemoryName, samples: readonly MemorySample[]): Trend {
  const memory = memories[name];
  const points = samples.slice(Math.floor(samples.length / 2)).map((sample) => ({
    calls: sample.calls,
    bytes: memory.bytesIn(sample),
  }));
  const { slope, error } = fitLine(points);
  const uncertainty = certainty * error;
  const calls = (points.at(-1)?.calls ?? 0) - (points[0]?.calls ?? 0);
  return { kind: kindOf(memory, slope, uncertainty, calls), bytesPerCall: slope, uncertainty };
}

function kindOf(memory: Memory, slope: number, uncertainty: number, calls: number): Trend["kind"] {
  const { leakPerCall, tolerated, minRise } = memory;
  if (slope - uncertainty > tolerated && slope * calls > minRise) return "growing";
  const wouldShow = leakPerCall * calls > minRise;
  return wouldShow && slope + uncertainty < leakPerCall ? "flat" : "unclear";
}

/** Returns why this trend fails the round. Empty if it does not. */
export function failingsOf(memory: MemoryName, { kind, bytesPerCall }: Trend): string[] {
  const { name, mustBeClear } = memories[memory];
  if (kind === "growing") return [`${name} grows by ${bytesPerCall.toFixed(1)} bytes a call`];
  return kind === "unclear" && mustBeClear ? [`whether ${name} grows is unclear: run the soak longer`] : [];
}

interface Point {
  readonly calls: number;
  readonly bytes: number;
}

/** Least squares: the slope and its standard error. Both are NaN for fewer than three points. */
function fitLine(points: readonly Point[]): { slope: number; error: number } {
  const count = points.length;
  if (count < 3) return { slope: Number.NaN, error: Number.NaN };
  const mean = (values: readonly number[]) => values.reduce((sum, value) => sum + value, 0) / count;
  const meanCalls = mean(points.map(({ calls }) => calls));
  const meanBytes = mean(points.map(({ bytes }) => bytes));
  const sum = (term: (calls: number, bytes: number) => number) =>
    points.reduce((total, { calls, bytes }) => total + term(calls - meanCalls, bytes - meanBytes), 0);
  const spread = sum((calls) => calls ** 2);
  const slope = sum((calls, bytes) => calls * bytes) / spread;
  const residue = sum((calls, bytes) => (bytes - slope * calls) ** 2);
  return { slope, error: Math.sqrt(residue / (count - 2) / spread) };
}
