import type { Machine } from "./machine.js";
import { type Goal, type Line, reaches } from "./row.js";
import type { Spread } from "./statistics.js";

/** The lines of a row, or the reason why it could not be measured. */
export type Result =
  | { readonly row: string; readonly lines: readonly Line[] }
  | { readonly row: string; readonly title: string; readonly failure: string };

export interface Report {
  readonly machine: Machine;
  readonly quick: boolean;
  readonly results: readonly Result[];
}

/** All measured lines. */
export function linesOf({ results }: Report): Line[] {
  return results.flatMap((result) => ("lines" in result ? result.lines : []));
}

/** One sentence for each missed goal and each failed row. */
function shortcomings({ results }: Report): string[] {
  return results.flatMap((result) =>
    "failure" in result
      ? [`${result.row} could not be measured: ${result.failure}`]
      : result.lines
          .filter((line) => !reaches(line))
          .map((line) => `${result.row} misses its goal: ${figure(line.value.median)}, not ${formatGoal(line.goal)}`),
  );
}

/** The exit code of the process. */
export function exitCodeOf(report: Report): number {
  return shortcomings(report).length === 0 ? 0 : 1;
}

/** The results in machine-readable form. */
export function toJson(report: Report): string {
  return JSON.stringify({ ...report, shortcomings: shortcomings(report) }, null, 2);
}

/** The results in human-readable form. */
export function toText(report: Report): string {
  const { machine, quick } = report;
  const lines = linesOf(report);
  const missed = shortcomings(report);
  return [
    table([
      ["", "median", "min – max", "per CPU", "goal", ""],
      ...lines.map((line) => [
        line.title,
        withUnit(line),
        `${figure(line.value.min)} – ${figure(line.value.max)}`,
        line.perCpu ? figure(line.perCpu.median) : "",
        formatGoal(line.goal),
        line.goal ? (reaches(line) ? "reached" : "MISSED") : "",
      ]),
    ]),
    "",
    ...lines.flatMap(toDetails),
    ...machineLines(machine),
    ...(quick ? ["Quick rounds: rough figures."] : []),
    "",
    missed.length === 0 ? "All goals are reached." : `FAILED:\n${missed.map((each) => `  ${each}`).join("\n")}`,
  ].join("\n");
}

/** The figures and notes of a line. */
function toDetails({ title, sides, notes }: Line): string[] {
  if (sides.length === 0) return [title, ...notes.map((note) => `  Note: ${note}.`), ""];
  const names = [...new Set(sides.flatMap((side) => Object.keys(side.figures)))];
  const rows = sides.map(({ name, figures }) => [`  ${name}`, ...names.map((each) => spread(figures[each]))]);
  return [title, table([["", ...names], ...rows]), ...notes.map((note) => `  Note: ${note}.`), ""];
}

export function machineLines({ date, cpu, memory, system, versions }: Machine): string[] {
  const list = Object.entries(versions).map(([name, version]) => `${name} ${version}`);
  return [`${date}, ${cpu}, ${memory}, ${system}`, list.join(", ")];
}

export function formatGoal(goal: Goal | undefined): string {
  if (goal === undefined) return "";
  return "atLeast" in goal ? `at least ${goal.atLeast}` : `at most ${goal.atMost}`;
}

/** Formats three significant digits and at most two decimals. The rounds do not agree beyond that. */
export function figure(value: number): string {
  if (Number.isNaN(value)) return "–";
  if (value >= 1_000) return Math.round(value).toLocaleString("en-US");
  return value.toFixed(value >= 100 ? 0 : value >= 10 ? 1 : 2);
}

export function withUnit({ value, unit }: Line): string {
  return unit === undefined ? figure(value.median) : `${figure(value.median)} ${unit}`;
}

function spread(value: Spread | undefined): string {
  return value ? `${figure(value.median)} (${figure(value.min)} – ${figure(value.max)})` : "";
}

/** Formats a table with minimal column widths. The first column is left-aligned, the others right-aligned. */
function table(cells: readonly (readonly string[])[]): string {
  const widths = (cells[0] ?? []).map((_, column) => Math.max(...cells.map((row) => row[column]?.length ?? 0)));
  const align = (cell: string, column: number) =>
    column === 0 ? cell.padEnd(widths[column] ?? 0) : cell.padStart(widths[column] ?? 0);
  return cells.map((row) => row.map(align).join("  ").trimEnd()).join("\n");
}
