import { tellGoal, withUnit } from "./report.js";
import { type Line, reaches } from "./row.js";

const width = 860;
const labelWidth = 430;
const barsAt = labelWidth + 20;
const barsWidth = 260;
const rowHeight = 34;
const top = 56;

/**
 * The lines that have a goal, as a picture: bars whose goal is at the same place in each row, so that what reaches its
 * goal is seen at a glance whatever the ratio. It fits light and dark surroundings and needs no font of its own.
 */
export function toSvg(lines: readonly Line[], caption: string): string {
  const shown = lines.filter(({ goal }) => goal !== undefined);
  const height = top + shown.length * rowHeight + 40;
  const told = shown.map((line) => `${line.title}: ${withUnit(line)}, goal ${tellGoal(line.goal)}`).join("; ");
  return `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${width} ${height}" role="img" aria-labelledby="title desc">
  <title id="title">Latchkey's benchmark: each ratio against its goal</title>
  <desc id="desc">${escaped(told)}. ${escaped(caption)}</desc>
  <style>
    text { font: 13px system-ui, sans-serif; fill: #1f2328 }
    .small { font-size: 11px; fill: #59636e }
    .bar { fill: #1a7f37 } .missed { fill: #bc4c00 } .spread { stroke: #1f2328 } .goal { stroke: #59636e }
    @media (prefers-color-scheme: dark) {
      text { fill: #f0f6fc } .small { fill: #9198a1 }
      .bar { fill: #3fb950 } .missed { fill: #f0883e } .spread { stroke: #f0f6fc } .goal { stroke: #9198a1 }
    }
  </style>
  <text x="0" y="18" font-weight="600">Latchkey, measured side by side</text>
  <text class="small" x="0" y="36">Bars: medians of the ratios, with their spread. Dashed: the goals. Numbers: ratio (goal).</text>
${shown.map(toBar).join("\n")}
  <text class="small" x="0" y="${height - 10}">${escaped(caption)}</text>
</svg>
`;
}

function toBar(line: Line, index: number): string {
  const y = top + index * rowHeight;
  const middle = y + rowHeight / 2;
  const { median, min, max } = line.value;
  const goal = goalAt(line);
  return [
    `  <text x="0" y="${middle + 4}">${escaped(line.title)}</text>`,
    `  <rect class="bar${reaches(line) ? "" : " missed"}" x="${barsAt}" y="${y + 8}" width="${at(median, line) - barsAt}" height="${rowHeight - 16}" rx="2"/>`,
    `  <line class="spread" x1="${at(min, line)}" x2="${at(max, line)}" y1="${middle}" y2="${middle}"/>`,
    `  <line class="goal" x1="${goal}" x2="${goal}" y1="${y + 2}" y2="${y + rowHeight - 2}" stroke-dasharray="3 2"/>`,
    `  <text x="${barsAt + barsWidth + 12}" y="${middle + 4}">${withUnit(line)} <tspan class="small">(${tellGoal(line.goal)})</tspan></text>`,
  ].join("\n");
}

/** Where the goal stands in every row. */
const goalShare = 0.6;

function goalAt(line: Line): number {
  return at(goalOf(line), line);
}

function goalOf({ goal }: Line): number {
  return goal === undefined ? 1 : "atLeast" in goal ? goal.atLeast : goal.atMost;
}

/** The place of a value; what is too large for the picture ends at its edge. */
function at(value: number, line: Line): number {
  const share = Math.min(1, (value / goalOf(line)) * goalShare);
  return Number((barsAt + share * barsWidth).toFixed(1));
}

function escaped(text: string): string {
  return text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");
}
