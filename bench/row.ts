import type { Bench } from "./bench.js";
import type { Spread } from "./statistics.js";

/** The minimum or maximum that a figure should reach. */
export type Goal = { readonly atLeast: number } | { readonly atMost: number };

/** One measurement, selectable by its name on the command line. */
export interface Row {
  readonly name: string;
  /** One line about what is measured. */
  readonly title: string;
  /** The first line is the row's own; further lines are reported with it. */
  measure(bench: Bench): Promise<readonly [Line, ...Line[]]>;
}

/** A line of the table. */
export interface Line {
  readonly title: string;
  readonly value: Spread;
  /** Undefined: the value is a ratio. */
  readonly unit?: string;
  /** Undefined: the value is only reported. */
  readonly goal?: Goal;
  /** The ratio of calls per second of server CPU time, which is independent of other load on the machine. */
  readonly perCpu?: Spread;
  /** The figures that the value was computed from. */
  readonly sides: readonly SideFigures[];
  /** Facts that a reader needs to interpret the value. */
  readonly notes: readonly string[];
}

/** The figures of one side. */
export interface SideFigures {
  readonly name: string;
  readonly figures: Readonly<Record<string, Spread>>;
}

/** Whether a line reaches its goal. A line without a goal always does. */
export function reaches({ value, goal }: Pick<Line, "value" | "goal">): boolean {
  if (goal === undefined) return true;
  return "atLeast" in goal ? value.median >= goal.atLeast : value.median <= goal.atMost;
}
