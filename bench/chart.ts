import { formatGoal, withUnit } from "./report.js";
import { type Line, reaches } from "./row.js";

const width = 760;
const barsWidth = 560;
const barHeight = 14;
const rowHeight = 48;
const top = 58;

/** Position of the goal in every row, as a fraction of the width. */
const goalShare = 0.6;

/**
 * An SVG bar chart of the lines that have a goal. The goal is at the same position in each row, so a reader sees at a
 * glance which lines reach it, whatever the ratio. The chart supports light and dark mode and embeds no font.
 */
export function toSvg(lines: readonly Line[], caption: string): string {
  const shown = lines.filter(({ goal }) => goal !== undefined);
  const height = top + shown.length * rowHeight + 24;
  const description = shown.map((line) => `${line.title}: ${withUnit(line)}, goal ${formatGoal(line.goal)}`).join("; ");
  return `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${width} ${height}" role="img" aria-labelledby="title desc">
  <title id="title">Latchkey's benchmark: each figure against its goal</title>
  <desc id="desc">${escaped(`${description}. ${caption}`)}</desc>
  <style>
    text { font: 13px system-ui, sans-serif; fill: #1f2328 }
    .heading { font-weight: 600 }
    .small { font-size: 11px; fill: #59636e }
    .bar { fill: #1a7f37 }
    .missed { fill: #bc4c00 }
    .spread { stroke: #1f2328; stroke-width: 2 }
    .goal { stroke: #59636e; stroke-dasharray: 3 2 }
    @media (prefers-color-scheme: dark) {
      text { fill: #f0f6fc }
      .small { fill: #9198a1 }
      .bar { fill: #2ea043 }
      .missed { fill: #db6d28 }
      .spread { stroke: #f0f6fc }
      .goal { stroke: #9198a1 }
    }
  </style>
  <text class="heading" x="0" y="16">Latchkey compared with other servers</text>
  <text class="small" x="0" y="36">Bars show medians, solid lines the spread, dashed lines the goal.</text>
${shown.map((line, index) => toBar(line, top + index * rowHeight)).join("\n")}
  <text class="small" x="0" y="${height - 6}">${escaped(caption)}</text>
</svg>
`;
}

function toBar(line: Line, y: number): string {
  const barAt = y + 20;
  const middle = barAt + barHeight / 2;
  const [median, min, max, goal] = [line.value.median, line.value.min, line.value.max, goalOf(line)].map(
    positionIn(line),
  );
  const kind = reaches(line) ? "bar" : "bar missed";
  return [
    `  <text x="0" y="${y + 13}">${escaped(line.title)}</text>`,
    `  <rect class="${kind}" x="0" y="${barAt}" width="${median}" height="${barHeight}"/>`,
    `  <line class="spread" x1="${min}" x2="${max}" y1="${middle}" y2="${middle}"/>`,
    `  <line class="goal" x1="${goal}" x2="${goal}" y1="${barAt - 3}" y2="${barAt + barHeight + 3}"/>`,
    `  <text x="${barsWidth + 14}" y="${middle + 5}">${escaped(withUnit(line))} <tspan class="small">${escaped(formatGoal(line.goal))}</tspan></text>`,
  ].join("\n");
}

function goalOf({ goal }: Line): number {
  return goal === undefined ? 1 : "atLeast" in goal ? goal.atLeast : goal.atMost;
}

/** Returns the position of a value in a row. Values too large for the chart end at its edge. */
function positionIn(line: Line) {
  return (value: number): number => Math.round(Math.min(1, (value / goalOf(line)) * goalShare) * barsWidth);
}

function escaped(text: string): string {
  return text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");
}
