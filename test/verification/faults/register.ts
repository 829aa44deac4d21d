/** A write of one value, as its writer saw it. */
export interface Write {
  readonly value: string;
  readonly begin: number;
  /** When it was acknowledged, or its writer gave up; Infinity while it is under way. */
  readonly end: number;
  readonly outcome: "under way" | "acknowledged" | "unknown";
}

/** One thing that a decision depends on, such as whether a workspace is enabled. It has one writer at a time. */
export interface Register {
  /** Announces a write before it is sent, and returns how to say how it ended. */
  write(value: string, begin: number): WriteUnderWay;
  /** Whether the register can have held the value at some moment from `begin` to `end`. */
  mayHold(value: string, begin: number, end: number): boolean;
  /** What was written, oldest first, as far as it is remembered. */
  history(): readonly Write[];
}

/** Exactly one of these is called, once. */
export interface WriteUnderWay {
  acknowledged(end: number): void;
  /** Only if it is certain that it never takes effect. */
  notApplied(): void;
  /** It may take effect at any moment after its begin, however late. */
  unknown(end: number): void;
}

/** How long what was overwritten is remembered; a call that lasted longer could not be judged. */
export const memoryMs = 30_000;

export function createRegister(initial: string): Register {
  let writes: Write[] = [{ value: initial, begin: -Infinity, end: -Infinity, outcome: "acknowledged" }];

  return {
    write(value, begin) {
      const latest = writes.at(-1);
      if (latest?.outcome === "under way") throw new Error("a register has one writer at a time");
      writes.push({ value, begin, end: Infinity, outcome: "under way" });
      const settle = (end: number, outcome: Write["outcome"]) => {
        writes[writes.length - 1] = { value, begin, end, outcome };
        writes = remembered(writes, end - memoryMs);
      };
      return {
        acknowledged: (end) => settle(end, "acknowledged"),
        notApplied: () => void writes.pop(),
        unknown: (end) => settle(end, "unknown"),
      };
    },

    mayHold(value, begin, end) {
      let overwritten = false;
      for (const write of writes.toReversed()) {
        // What was overwritten before the call began is past, unless nobody knows when it takes effect.
        const possible = !overwritten || write.outcome === "unknown";
        if (possible && write.value === value && write.begin <= end) return true;
        if (write.outcome === "acknowledged" && write.end < begin) overwritten = true;
      }
      return false;
    },

    history: () => writes,
  };
}

/** Leaves out what was overwritten before `horizon`. */
function remembered(writes: Write[], horizon: number): Write[] {
  const settled = writes.findLastIndex(({ outcome, end }) => outcome === "acknowledged" && end < horizon);
  return settled < 1 ? writes : writes.filter(({ outcome }, at) => at >= settled || outcome === "unknown");
}
