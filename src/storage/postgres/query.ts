import type { Attributes, Span } from "@opentelemetry/api";
import type { PendingQuery, Row, RowList } from "postgres";
import { type Call, runUnlessAborted } from "../../call/call.js";
import { inSpan } from "../../observe/tracing.js";
import type { Origin } from "./shares.js";
import { patiently, withOrigin } from "./statement.js";

type Rows = readonly (Row | undefined)[];

/** Runs a statement for a call, for as long as somebody waits for the call's answer. */
export function run<T extends Rows>(call: Call, statement: PendingQuery<T>): Promise<RowList<T>> {
  return runAs(originOf(call), call, statement);
}

/** Runs a statement that reads at most one row, by an index: it cannot take long, so it is sent behind those of others. */
export function readOne<T extends Rows>(call: Call, statement: PendingQuery<T>): Promise<RowList<T>> {
  const isOfWorkspace = call.workspaceId !== undefined && !call.revokes;
  return runAs(isOfWorkspace ? lookupOriginOf(call) : originOf(call), call, statement);
}

function runAs<T extends Rows>(origin: Origin, call: Call, statement: PendingQuery<T>): Promise<RowList<T>> {
  withOrigin(statement, origin);
  // Not refused for want of a connection, as long as the call itself has time: it is what an overload is ended by.
  if (call.revokes) patiently(statement);
  return told(
    call.span,
    runUnlessAborted(call, statement, () => statement.cancel()),
  );
}

/**
 * Runs a lookup of a key or a workspace. Several calls may wait for its answer, so it does not end with the call that
 * began it; but it takes the turn of that one.
 */
export function runForAll<T extends Rows>(call: Call | undefined, statement: PendingQuery<T>): Promise<RowList<T>> {
  withOrigin(statement, lookupOriginOf(call));
  return told(call?.span, Promise.resolve(statement));
}

/** Calls for no workspace are the operator's: nobody else gets as far as a statement of their own. */
function originOf({ workspaceId, callerId, revokes }: Call): Origin {
  // Those of each key take turns: a stolen one that revokes all the time does not keep others from revoking it.
  if (workspaceId !== undefined && revokes) return { class: "revocation", account: workspaceId, flow: callerId };
  if (workspaceId !== undefined) return { class: "ordinary", account: workspaceId };
  return { class: "operator", account: revokes ? "revocations" : "others" };
}

/**
 * Lookups cannot take long, so those of all workspaces share connections, in turn. Who is not known yet is apart: whoever
 * likes can bring keys that have to be looked up, and each connection is a flow of its own there. Who brings thousands of
 * keys waits for them, and others only for their turn.
 */
function lookupOriginOf(call: Call | undefined): Origin {
  if (call?.workspaceId !== undefined) return { class: "lookup", account: "workspaces", flow: call.workspaceId };
  return { class: "lookup", account: "strangers", flow: call?.connection };
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
