import { type DescMessage, isMessage, type MessageShape, toJson } from "@bufbuild/protobuf";
import { TimestampSchema, timestampDate } from "@bufbuild/protobuf/wkt";

/** The columns of a table: a heading, and what stands below it. */
export type Columns<Row> = Record<string, (row: Row) => unknown>;

/** Writes a message for scripts. */
export function writeJson<Schema extends DescMessage>(schema: Schema, message: MessageShape<Schema>): void {
  const json = JSON.stringify(toJson(schema, message, { alwaysEmitImplicit: true }), null, 2);
  process.stdout.write(
    `${json.replace(unseen, (character) => (character === "\n" ? character : escaped(character)))}\n`,
  );
}

/** Writes rows for people. */
export function writeTable<Row>(rows: readonly Row[], columns: Columns<Row>): void {
  const headings = Object.keys(columns);
  const lines = [headings, ...rows.map((row) => Object.values(columns).map((cell) => shown(cell(row))))];
  const widths = headings.map((_, column) => Math.max(...lines.map((line) => line[column]?.length ?? 0)));
  for (const line of lines) {
    process.stdout.write(
      `${line
        .map((cell, column) => cell.padEnd(widths[column] ?? 0))
        .join("  ")
        .trimEnd()}\n`,
    );
  }
}

/** Writes one thing for people: a line for each of its properties that has a value. */
export function writeRecord<Row>(row: Row, columns: Columns<Row>): void {
  const width = Math.max(...Object.keys(columns).map((heading) => heading.length));
  for (const [heading, cell] of Object.entries(columns)) {
    const text = shown(cell(row));
    if (text !== "") process.stdout.write(`${heading.padEnd(width)}  ${text}\n`);
  }
}

/** Says how to see the rest of a list. */
export function writeMore(pagination: { cursor?: string } | undefined): void {
  if (pagination?.cursor) process.stdout.write(`\nThere are more: --cursor ${printable(pagination.cursor)}\n`);
}

function shown(value: unknown): string {
  if (value === undefined || value === null) return "";
  if (isMessage(value, TimestampSchema)) return timestampDate(value).toISOString();
  if (Array.isArray(value)) return printable(value.join(", "));
  return printable(typeof value === "object" ? JSON.stringify(value) : String(value));
}

/**
 * What nobody sees, and what can steer a terminal or turn the order of a line: control characters, those of C1 included,
 * marks of direction, other format characters, and the separators of lines and paragraphs.
 */
const unseen = /[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/gu;

/** Names and meta are the users' own, and are shown to others: what is unseen is written as JSON would escape it. */
export function printable(text: string): string {
  return text.replace(unseen, escaped);
}

function escaped(character: string): string {
  const units = Array.from({ length: character.length }, (_, index) => character.charCodeAt(index));
  return units.map((unit) => `\\u${unit.toString(16).padStart(4, "0")}`).join("");
}
