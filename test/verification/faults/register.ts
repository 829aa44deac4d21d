/** A write of one value, as its writer observed it. */
export interface Write {
  readonly value: string;
  readonly begin: number;
  /** When it was acknowledged, or its writer gave up. Infinity while it is pending. */
  readonly end: number;
  readonly outcome: "pending" | "acknowledged" | "unknown";
}

/** One value that authorization depends on, such as whether a workspace is enabled. It has one writer at a time. */
export interface Register {
  /** Registers a write before it is sent. The outcome is reported to the returned object. */
  write(value: string, begin: number): PendingWrite;
  /** Whether the register can have had the value at some moment from `begin` to `end`. */
  couldHold(value: string, begin: number, end: number): boolean;
  /** The retained writes, oldest first. */
  history(): readonly Write[];
}

/** Exactly one of these must be called, once. */
export interface PendingWrite {
  acknowledged(end: number): void;
  /** Only if the write certainly never takes effect. */
  notApplied(): void;
  /** The write may take effect at any moment after its begin, however late. */
  unknown(end: number): void;
}

/** How long overwritten values are retained. A call that lasted longer could not be checked. */
export const retentionMs = 30_000;

export function createRegister(initial: string): Register {
  let writes: Write[] = [{ value: initial, begin: -Infinity, end: -Infinity, outcome: "acknowledged" }];

  return {
    write(value, begin) {
      const latest = writes.at(-1);
      if (latest?.outcome === "pending") throw new Error("a register has one writer at a time");
      writes.push({ value, begin, end: Infinity, outcome: "pending" });
      const settle = (end: number, outcome: Write["outcome"]) => {
        writes[writes.length - 1] = { value, begin, end, outcome };
        writes = prune(writes, end - retentionMs);
      };
      return {
        acknowledged: (end) => settle(end, "acknowledged"),
        notApplied: () => void writes.pop(),
        unknown: (end) => settle(end, "unknown"),
      };
    },

    couldHold(value, begin, end) {
      let overwritten = false;
      for (const write of writes.toReversed()) {
        // A value that was overwritten before the call began is impossible, unless the outcome of its write is unknown.
        const possible = !overwritten || write.outcome === "unknown";
        if (possible && write.value === value && write.begin <= end) return true;
        if (write.outcome === "acknowledged" && write.end < begin) overwritten = true;
      }
      return false;
    },

    history: () => writes,
  };
}

/** Removes the writes that were overwritten before `horizon`. */
function prune(writes: Write[], horizon: number): Write[] {
  const settled = writes.findLastIndex(({ outcome, end }) => outcome === "acknowledged" && end < horizon);
  return settled < 1 ? writes : writes.filter(({ outcome }, at) => at >= settled || outcome === "unknown");
}
