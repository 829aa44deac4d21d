import { type DescMessage, isMessage, type MessageShape, toJson } from "@bufbuild/protobuf";
import { TimestampSchema, timestampDate } from "@bufbuild/protobuf/wkt";

/** The columns of a table: a heading, and what stands below it. */
export type Columns<Row> = Record<string, (row: Row) => unknown>;

/** Writes a message for scripts. */
export function writeJson<Schema extends DescMessage>(schema: Schema, message: MessageShape<Schema>): void {
  process.stdout.write(`${JSON.stringify(toJson(schema, message, { alwaysEmitImplicit: true }), null, 2)}\n`);
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
  if (pagination?.cursor) process.stdout.write(`\nThere are more: --cursor ${pagination.cursor}\n`);
}

function shown(value: unknown): string {
  if (value === undefined || value === null) return "";
  if (isMessage(value, TimestampSchema)) return timestampDate(value).toISOString();
  if (Array.isArray(value)) return value.join(", ");
  if (typeof value === "object") return JSON.stringify(value);
  // Names are the users' own: whatever could steer a terminal is left out.
  return String(value).replace(/\p{Cc}/gu, "");
}
