import type { Attributes, Span } from "@opentelemetry/api";
import type { PendingQuery, Row, RowList } from "postgres";
import { type Call, workFor } from "../call.js";
import { inSpan } from "../observe/tracing.js";

type Rows = readonly (Row | undefined)[];

/** Runs a statement for a call, for as long as somebody waits for the call's answer. */
export function run<T extends Rows>(call: Call, statement: PendingQuery<T>): Promise<RowList<T>> {
  return told(
    call.span,
    workFor(call, statement, () => statement.cancel()),
  );
}

/** Runs a statement whose answer several calls may wait for: it does not end with the one that began it. */
export function runForAll<T extends Rows>(span: Span | undefined, statement: PendingQuery<T>): Promise<RowList<T>> {
  return told(span, Promise.resolve(statement));
}

function told<T extends Rows>(span: Span | undefined, result: Promise<RowList<T>>): Promise<RowList<T>> {
  return span === undefined ? result : inSpan(span, { "db.system.name": "postgresql" }, result, describe);
}

/** The statement as it was sent, which has $1 and so on where its values stand. postgres.js adds it to errors, too. */
function describe(outcome: unknown): Attributes {
  const { statement, query, command } = outcome as Partial<RowList<Row[]>> & { query?: string };
  const text = statement?.string ?? query;
  return { ...(text && { "db.query.text": text.trim() }), ...(command && { "db.operation.name": command }) };
}
