// Fits tables into a terminal. Written by hand, because packages for tables shorten every column, ids included.
import stringWidth from "string-width";

/** Between two columns. */
export const gap = "  ";

/**
 * The columns that may be shortened: names, other texts for people, and lists. Readers copy ids, secrets and times, so
 * these are always complete.
 */
const shortenable = new Set(["NAME", "DESCRIPTION", "NOTE", "META", "SCOPES", "PERMISSIONS", "ROLES"]);

/** The minimum width of a shortened column. */
const minWidth = 10;

/** The widths of the columns that are shown, and the headings of the others. */
interface Layout {
  readonly widths: readonly number[];
  readonly hidden: readonly string[];
}

/**
 * Lays out a table. Columns are shortened first, the widest at the start, then hidden from the end.
 *
 * @param columns the cells of each column, the heading first
 * @param available the width of the terminal; 0 if there is no limit
 */
export function fitColumns(columns: readonly (readonly string[])[], available: number): Layout {
  const widths = columns.map((cells) => Math.max(...cells.map((cell) => stringWidth(cell))));
  if (!available) return { widths, hidden: [] };
  const headings = columns.map(([heading = ""]) => heading);
  const minWidths = widths.map((width, column) => {
    const heading = headings[column] ?? "";
    return shortenable.has(heading) ? Math.min(width, Math.max(minWidth, heading.length)) : width;
  });
  const shown = columnsThatFit(minWidths, available);
  const fitted = widths.slice(0, shown);
  while (totalOf(fitted) > available) {
    const excess = fitted.map((width, column) => width - (minWidths[column] ?? width));
    const widest = Math.max(...fitted.filter((_, column) => (excess[column] ?? 0) > 0));
    if (widest === Number.NEGATIVE_INFINITY) break;
    const column = fitted.findIndex((width, index) => width === widest && (excess[index] ?? 0) > 0);
    fitted[column] = widest - 1;
  }
  return { widths: fitted, hidden: headings.slice(shown) };
}

/** How many columns fit, at least one: a narrower terminal wraps its lines. */
function columnsThatFit(minWidths: readonly number[], available: number): number {
  let shown = minWidths.length;
  while (shown > 1 && totalOf(minWidths.slice(0, shown)) > available) shown--;
  return shown;
}

function totalOf(widths: readonly number[]): number {
  return widths.reduce((total, width) => total + width, gap.length * (widths.length - 1));
}

const graphemes = new Intl.Segmenter();

/** The text, or as much of it as fits before an ellipsis. */
export function shorten(text: string, width: number): string {
  if (stringWidth(text) <= width) return text;
  let start = "";
  for (const { segment } of graphemes.segment(text)) {
    if (stringWidth(start + segment) > width - 1) break;
    start += segment;
  }
  return `${start}…`;
}

/** Pads by the width on a terminal, where many Asian characters and emoji take two columns. */
export function padEnd(text: string, width: number): string {
  return text + " ".repeat(Math.max(0, width - stringWidth(text)));
}
