/** What was measured at one moment, after a collection, and how many calls had been made. */
export interface MemorySample {
  readonly calls: number;
  readonly heapBytes: number;
  readonly externalBytes: number;
  readonly rssBytes: number;
}

/** Whether a part of the memory grows with the calls. */
export interface Verdict {
  /** `unclear`: too few samples, or too noisy, to exclude a leak that is worth finding. */
  readonly kind: "flat" | "growing" | "unclear";
  /** The slope of the line, and how far off it may be. */
  readonly bytesPerCall: number;
  readonly uncertainty: number;
}

/** A part of the memory, and what counts as a leak of it. */
interface Memory {
  readonly name: string;
  readonly bytesIn: (sample: MemorySample) => number;
  /** A leak that is to be found, in bytes a call. */
  readonly leakPerCall: number;
  /** What a sound service may gain, in bytes a call: compiled code, and the like. */
  readonly tolerated: number;
  /** How much comes and goes by itself: a rise in all that is smaller says nothing. */
  readonly leastRise: number;
  /** Whether a round fails, too, that cannot exclude a leak. */
  readonly mustBeClear: boolean;
}

/** A leak of 1 KiB in 100 calls is to be found, in objects and in Buffers. */
const exact = { leakPerCall: 1_024 / 100, tolerated: 1_024 / 400, leastRise: 0, mustBeClear: true };

/** Freed memory goes back to the system when the allocator likes, so only a leak of 1 KiB a call is to be found. */
const rough = { leakPerCall: 1_024, tolerated: 512, leastRise: 8 * 2 ** 20, mustBeClear: false };

export const memories = {
  heap: { name: "the heap", bytesIn: ({ heapBytes }) => heapBytes, ...exact },
  external: { name: "what is outside of the heap", bytesIn: ({ externalBytes }) => externalBytes, ...exact },
  resident: { name: "resident memory", bytesIn: ({ rssBytes }) => rssBytes, ...rough },
} as const satisfies Record<string, Memory>;

export type MemoryName = keyof typeof memories;

/** How many standard errors of the slope count as certain. */
const certainty = 3;

export const rule = `A line is fitted through the second half of the samples. The heap, and what is outside of it (Buffers, and what native code
says that it keeps), is flat if the line rises by less than ${exact.leakPerCall.toFixed(1)} bytes a call (1 KiB in 100 calls), also when ${certainty} standard errors
of its slope are added; it grows if the line rises by more than ${exact.tolerated.toFixed(1)} bytes a call, also when they are subtracted. What is
neither is unclear. Until both are flat the soak goes on, for up to four times as long; then it fails. Resident memory,
which comes and goes with more than the calls, fails if the line rises by more than ${rough.tolerated} bytes a call in the same way, and by more than ${rough.leastRise / 2 ** 20} MiB.`;

/** Judges by the second half of the samples: in the first, caches fill and code is compiled. */
export function judge(name: MemoryName, samples: readonly MemorySample[]): Verdict {
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

function kindOf(memory: Memory, slope: number, uncertainty: number, calls: number): Verdict["kind"] {
  const { leakPerCall, tolerated, leastRise } = memory;
  if (slope - uncertainty > tolerated && slope * calls > leastRise) return "growing";
  const wouldShow = leakPerCall * calls > leastRise;
  return wouldShow && slope + uncertainty < leakPerCall ? "flat" : "unclear";
}

/** What is wrong with a verdict, in a sentence; none if nothing is. */
export function failingsOf(memory: MemoryName, { kind, bytesPerCall }: Verdict): string[] {
  const { name, mustBeClear } = memories[memory];
  if (kind === "growing") return [`${name} grows by ${bytesPerCall.toFixed(1)} bytes a call`];
  return kind === "unclear" && mustBeClear ? [`whether ${name} grows is unclear: run it longer`] : [];
}

interface Point {
  readonly calls: number;
  readonly bytes: number;
}

/** Least squares: the slope and its standard error, which fewer than three points do not have. */
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
