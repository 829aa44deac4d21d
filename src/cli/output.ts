import { type DescMessage, isMessage, type MessageShape, toJson } from "@bufbuild/protobuf";
import { TimestampSchema, timestampDate } from "@bufbuild/protobuf/wkt";
import { UserError } from "../errors.js";
import { fitColumns, gap, padEnd, shorten } from "./table-layout.js";

/** The columns of a table: the heading, and the value of a row. */
export type Columns<Row> = Record<string, (row: Row) => unknown>;

/**
 * Watches the standard output. Without a listener, an error such as a full disk would end a service that is running.
 *
 * @returns a function that waits until everything is written. It throws if something was not, unless the reader has closed
 *   its end, as `head` does
 */
export function watchOutput(): () => Promise<void> {
  let failure: NodeJS.ErrnoException | undefined;
  process.stdout.on("error", (error: NodeJS.ErrnoException) => {
    failure ??= error;
  });
  return async () => {
    await new Promise<void>((resolve) => process.stdout.write("", () => resolve()));
    if (failure === undefined || failure.code === "EPIPE") return;
    throw new UserError(
      `The output could not be written: ${failure.message}. If it had a new secret, create another one.`,
    );
  };
}

/** Prints a message as JSON, for scripts. */
export function writeJson<Schema extends DescMessage>(schema: Schema, message: MessageShape<Schema>): void {
  const json = JSON.stringify(toJson(schema, message, { alwaysEmitImplicit: true }), null, 2);
  process.stdout.write(
    `${json.replace(invisible, (character) => (character === "\n" ? character : escapeCharacter(character)))}\n`,
  );
}

/** Prints rows as a table, for people. On a terminal, the table is not wider than the terminal. */
export function writeTable<Row>(rows: readonly Row[], columns: Columns<Row>): void {
  const cells = Object.entries(columns).map(([heading, cell]) => [heading, ...rows.map((row) => format(cell(row)))]);
  const { widths, hidden } = fitColumns(cells, process.stdout.isTTY ? process.stdout.columns : 0);
  for (const line of [undefined, ...rows].keys()) {
    const texts = widths.map((width, column) => padEnd(shorten(cells[column]?.[line] ?? "", width), width));
    process.stdout.write(`${texts.join(gap).trimEnd()}\n`);
  }
  if (hidden.length > 0) {
    process.stdout.write(`\nNot shown: ${hidden.join(", ")}. A wider terminal or --json shows them.\n`);
  }
}

/** Prints one resource for people: a line for each property that has a value. */
export function writeRecord<Row>(row: Row, columns: Columns<Row>): void {
  const width = Math.max(...Object.keys(columns).map((heading) => heading.length));
  for (const [heading, cell] of Object.entries(columns)) {
    const text = format(cell(row));
    if (text !== "") process.stdout.write(`${heading.padEnd(width)}  ${text}\n`);
  }
}

/** Prints the flag for the next page of a list. */
export function writeNextPageHint(pagination: { cursor?: string } | undefined): void {
  if (pagination?.cursor) process.stdout.write(`\nMore results: --cursor ${printable(pagination.cursor)}\n`);
}

function format(value: unknown): string {
  if (value === undefined || value === null) return "";
  if (isMessage(value, TimestampSchema)) return timestampDate(value).toISOString();
  if (Array.isArray(value)) return printable(value.join(", "));
  return printable(typeof value === "object" ? JSON.stringify(value) : String(value));
}

/**
 * Invisible characters, and those that can control a terminal or reverse the order of a line: control characters
 * (including C1), direction marks, other format characters, and line and paragraph separators.
 */
const invisible = /[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/gu;

/** Users choose names and meta, and others see them. So invisible characters are printed as JSON escapes. */
export function printable(text: string): string {
  return text.replace(invisible, escapeCharacter);
}

function escapeCharacter(character: string): string {
  const units = Array.from({ length: character.length }, (_, index) => character.charCodeAt(index));
  return units.map((unit) => `\\u${unit.toString(16).padStart(4, "0")}`).join("");
}
