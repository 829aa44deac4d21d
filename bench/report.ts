import type { Machine } from "./machine.js";
import { type Goal, type Line, reaches } from "./row.js";
import type { Spread } from "./statistics.js";

/** What a row came to, or why it came to nothing. */
export type Result =
  | { readonly row: string; readonly lines: readonly Line[] }
  | { readonly row: string; readonly title: string; readonly failure: string };

export interface Report {
  readonly machine: Machine;
  readonly quick: boolean;
  readonly results: readonly Result[];
}

/** All lines that were measured. */
export function linesOf({ results }: Report): Line[] {
  return results.flatMap((result) => ("lines" in result ? result.lines : []));
}

/** What is wrong with the results, a sentence each: goals that are missed, rows that failed. */
function shortcomings({ results }: Report): string[] {
  return results.flatMap((result) =>
    "failure" in result
      ? [`${result.row} could not be measured: ${result.failure}`]
      : result.lines
          .filter((line) => !reaches(line))
          .map((line) => `${result.row} misses its goal: ${figure(line.value.median)}, not ${tellGoal(line.goal)}`),
  );
}

/** What the process is to end with. */
export function exitCodeOf(report: Report): number {
  return shortcomings(report).length === 0 ? 0 : 1;
}

/** The results for programs. */
export function toJson(report: Report): string {
  return JSON.stringify({ ...report, shortcomings: shortcomings(report) }, null, 2);
}

/** The results for people. */
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
        tellGoal(line.goal),
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

/** What each side came to. */
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

export function tellGoal(goal: Goal | undefined): string {
  if (goal === undefined) return "";
  return "atLeast" in goal ? `at least ${goal.atLeast}` : `at most ${goal.atMost}`;
}

/** Three digits that count, and no more than two decimals: the rounds do not agree further. */
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

/** Columns as wide as they need to be; the first to the left, the others to the right. */
function table(cells: readonly (readonly string[])[]): string {
  const widths = (cells[0] ?? []).map((_, column) => Math.max(...cells.map((row) => row[column]?.length ?? 0)));
  const align = (cell: string, column: number) =>
    column === 0 ? cell.padEnd(widths[column] ?? 0) : cell.padStart(widths[column] ?? 0);
  return cells.map((row) => row.map(align).join("  ").trimEnd()).join("\n");
}
