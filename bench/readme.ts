import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { project } from "../commands/project.js";
import { toSvg } from "./chart.js";
import { figure, formatGoal, linesOf, machineLines, type Report, withUnit } from "./report.js";
import { reaches } from "./row.js";

const openingMarker = "<!-- bench: written by `npm run bench -- --write` -->\n";
const closingMarker = "<!-- /bench -->";

/** The documents that show a report: the table, one sentence about the goals, and the chart in both. */
export const resultsFile = "docs/architecture/performance.md";
export const summaryFile = "README.md";
export const pictureFile = "docs/bench.svg";

/** Writes a report into the documents. */
export function writeResults(report: Report): void {
  edit(resultsFile, (text) => withResults(text, report));
  edit(summaryFile, (text) => withSummary(text, report));
  writeFileSync(join(project, pictureFile), toPicture(report));
}

function edit(path: string, change: (text: string) => string): void {
  const file = join(project, path);
  writeFileSync(file, change(readFileSync(file, "utf8")));
}

export function toPicture(report: Report): string {
  return toSvg(linesOf(report), machineLines(report.machine)[0] ?? "");
}

/** Replaces the text between the markers by the table of results. */
export function withResults(text: string, report: Report): string {
  return replaceBetweenMarkers(text, toTable(report));
}

/** Replaces the text between the markers by a sentence: how many goals are reached, and which are missed. */
export function withSummary(text: string, report: Report): string {
  return replaceBetweenMarkers(text, toSummary(report));
}

function replaceBetweenMarkers(text: string, content: string): string {
  const from = text.indexOf(openingMarker) + openingMarker.length;
  const to = text.indexOf(closingMarker, from);
  if (from < openingMarker.length || to < 0)
    throw new Error("the document has no markers for the results of the benchmark");
  return text.slice(0, from) + content + text.slice(to);
}

function toSummary(report: Report): string {
  const lines = linesOf(report).filter(({ goal }) => goal !== undefined);
  const missed = lines.filter((line) => !reaches(line));
  const list = missed.map((line) => `${line.title} (${withUnit(line)}, goal ${formatGoal(line.goal)})`).join("; ");
  const reached = `On ${report.machine.date}, ${lines.length - missed.length} of ${lines.length} goals were reached.`;
  return `${reached}${missed.length > 0 ? ` Missed: ${list}.` : ""}\n`;
}

function toTable(report: Report): string {
  const rows = linesOf(report).map((line) =>
    [
      line.title,
      `**${withUnit(line)}**${reaches(line) ? "" : " (missed)"}`,
      `${figure(line.value.min)} – ${figure(line.value.max)}`,
      line.perCpu ? figure(line.perCpu.median) : "",
      formatGoal(line.goal),
    ].join(" | "),
  );
  return [
    "| | Median | Spread | Per CPU second | Goal |",
    "|---|---|---|---|---|",
    ...rows.map((row) => `| ${row} |`.replaceAll("|  |", "| |")),
    "",
    ...machineLines(report.machine).map((line) => `${line}.`),
    "",
  ].join("\n");
}
