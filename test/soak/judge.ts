/** What was measured at one moment: the heap after a collection, and how many calls had been made. */
export interface HeapSample {
  readonly calls: number;
  readonly heapBytes: number;
}

/** Whether the heap grows with the calls. */
export interface HeapVerdict {
  /** `unclear`: too few samples, or too noisy, to exclude a leak that is worth finding. */
  readonly kind: "flat" | "growing" | "unclear";
  /** The slope of the line, and how far off it may be. */
  readonly bytesPerCall: number;
  readonly uncertainty: number;
}

/** A leak of 1 KiB in 100 calls is to be found. */
const leakPerCall = 1_024 / 100;

/** What a service may gain that is still warming up: compiled code, and the like. */
const tolerated = leakPerCall / 4;

/** How many standard errors of the slope count as certain. */
const certainty = 3;

export const rule = `A line is fitted through the second half of the samples. The heap is flat if the line rises by less than
${leakPerCall.toFixed(1)} bytes a call (1 KiB in 100 calls), also when ${certainty} standard errors of its slope are added; it grows if the line rises
by more than ${tolerated.toFixed(1)} bytes a call, also when they are subtracted. What is neither is unclear, and fails too: run it longer.`;

/** Judges by the second half of the samples: in the first, caches fill and code is compiled. */
export function judgeHeap(samples: readonly HeapSample[]): HeapVerdict {
  const { slope, error } = fitLine(samples.slice(Math.floor(samples.length / 2)));
  const uncertainty = certainty * error;
  return { kind: kindOf(slope, uncertainty), bytesPerCall: slope, uncertainty };
}

function kindOf(slope: number, uncertainty: number): HeapVerdict["kind"] {
  if (slope - uncertainty > tolerated) return "growing";
  return slope + uncertainty < leakPerCall ? "flat" : "unclear";
}

/** Least squares: the slope and its standard error, which fewer than three points do not have. */
function fitLine(samples: readonly HeapSample[]): { slope: number; error: number } {
  const count = samples.length;
  if (count < 3) return { slope: Number.NaN, error: Number.NaN };
  const mean = (values: readonly number[]) => values.reduce((sum, value) => sum + value, 0) / count;
  const meanCalls = mean(samples.map(({ calls }) => calls));
  const meanHeap = mean(samples.map(({ heapBytes }) => heapBytes));
  const sum = (term: (calls: number, heap: number) => number) =>
    samples.reduce((total, { calls, heapBytes }) => total + term(calls - meanCalls, heapBytes - meanHeap), 0);
  const spread = sum((calls) => calls ** 2);
  const slope = sum((calls, heap) => calls * heap) / spread;
  const residue = sum((calls, heap) => (heap - slope * calls) ** 2);
  return { slope, error: Math.sqrt(residue / (count - 2) / spread) };
}
