import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { project } from "../commands/project.js";
import { toSvg } from "./chart.js";
import { figure, linesOf, machineLines, type Report, tellGoal, withUnit } from "./report.js";
import { reaches } from "./row.js";

const opening = "<!-- bench: written by `npm run bench -- --write` -->\n";
const closing = "<!-- /bench -->";

/** Has the README, and the picture in it, show a report. */
export function writeReadme(report: Report): void {
  const file = join(project, "README.md");
  writeFileSync(file, withResults(readFileSync(file, "utf8"), report));
  writeFileSync(join(project, "docs/bench.svg"), toPicture(report));
}

export function toPicture(report: Report): string {
  return toSvg(linesOf(report), machineLines(report.machine)[0] ?? "");
}

/** Puts the results between their marks in a text. */
export function withResults(text: string, report: Report): string {
  const from = text.indexOf(opening) + opening.length;
  const to = text.indexOf(closing, from);
  if (from < opening.length || to < 0) throw new Error("README.md has no place for the results of the benchmark");
  return text.slice(0, from) + toMarkdown(report) + text.slice(to);
}

function toMarkdown(report: Report): string {
  const rows = linesOf(report).map((line) =>
    [
      line.title,
      `**${withUnit(line)}**${reaches(line) ? "" : " (missed)"}`,
      `${figure(line.value.min)} – ${figure(line.value.max)}`,
      line.perCpu ? figure(line.perCpu.median) : "",
      tellGoal(line.goal),
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
