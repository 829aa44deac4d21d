import type { Bench } from "./bench.js";
import type { Spread } from "./statistics.js";

/** What a figure is to be. */
export type Goal = { readonly atLeast: number } | { readonly atMost: number };

/** One row of the table: something that is measured, by a name that it can be asked for. */
export interface Row {
  readonly name: string;
  /** What is measured, in a line. */
  readonly title: string;
  /** The first of them is the row's; others are reported beside it. */
  measure(bench: Bench): Promise<readonly [Line, ...Line[]]>;
}

/** A line of the table. */
export interface Line {
  readonly title: string;
  readonly value: Spread;
  /** Nothing stands for a ratio. */
  readonly unit?: string;
  /** None: it is only reported. */
  readonly goal?: Goal;
  /** The ratio of the calls that one second of the servers' CPU answers: free of what else the machine was doing. */
  readonly perCpu?: Spread;
  /** What the value was made from. */
  readonly sides: readonly SideFigures[];
  /** What a reader must know to judge the value. */
  readonly notes: readonly string[];
}

/** What one side came to. */
export interface SideFigures {
  readonly name: string;
  readonly figures: Readonly<Record<string, Spread>>;
}

/** Whether a line reaches its goal; one without a goal does. */
export function reaches({ value, goal }: Pick<Line, "value" | "goal">): boolean {
  if (goal === undefined) return true;
  return "atLeast" in goal ? value.median >= goal.atLeast : value.median <= goal.atMost;
}
