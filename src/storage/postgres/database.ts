import type { Attributes, Span } from "@opentelemetry/api";
import type { Row, RowList, TransactionSql } from "postgres";
import { type Call, runUnlessAborted } from "../../call/call.js";
import { inSpan } from "../../observe/tracing.js";
import { connectPostgres, type PoolSettings, poolSettings, type Sql } from "./connection.js";
import { isReadOnly } from "./errors.js";
import { assertInternals, closeNow } from "./internals.js";
import { createPool, type PoolUsage } from "./pool.js";
import { type Origin, ownOrigin } from "./shares.js";
import type { Fragment, Rows } from "./sql.js";
import { execute, type StatementObserver } from "./statement.js";

/** Runs statements on pooled connections. */
export interface Database {
  /** Runs a statement for a call, and cancels it when the call is aborted. */
  run<T extends Rows>(call: Call, statement: Fragment<T>): Promise<RowList<T>>;
  /** The same for a statement that reads at most one row by an index. It is quick, so it is pipelined behind others. */
  readOne<T extends Rows>(call: Call, statement: Fragment<T>): Promise<RowList<T>>;
  /**
   * Reads the state of a key or a workspace. Several calls may wait for the result, so it is not cancelled with the call
   * that started it. It takes its turn with the statements of that call's workspace or connection.
   */
  readShared<T extends Rows>(call: Call | undefined, statement: Fragment<T>): Promise<RowList<T>>;
  /** Runs a statement of the service itself. It is never shed. */
  runInBackground<T extends Rows>(statement: Fragment<T>): Promise<RowList<T>>;
  /** Runs a transaction of several statements. For start-up: if its connection breaks, the process may end. */
  begin<T>(work: (transaction: TransactionSql) => Promise<T>): Promise<T>;
  /** Replaces all connections. Statements in flight have a moment to finish; waiting ones continue on the new connections. */
  renew(): void;
  usage(): PoolUsage;
  close(): Promise<void>;
}

/** How long statements in flight may continue on connections that were replaced. */
const replacedSeconds = 0.5;

/** How soon connections that lead to a standby may be replaced again. */
const minStandbyIntervalMs = 1_000;

/**
 * Opens connections that survive breaks and lost packets. postgres.js 3.4.9 alone does not: it uses a silent connection until
 * TCP gives up, 15 minutes later; a statement that arrives between the error and the end of a broken connection waits
 * forever or counts as done; and rows of a broken connection appear in the next result. So when one connection breaks, all
 * are replaced, and only complete results count. All are replaced, too, if one leads to a standby: the address may lead to
 * the primary by now.
 *
 * @param observer without one, no statement is shed
 */
export function openDatabase(
  url: string,
  settings: PoolSettings = poolSettings,
  observer?: StatementObserver,
): Database {
  let closing = false;
  let connections = connect();
  assertInternals(connections[0] as Sql);
  const pool = createPool(connections, settings.rules);

  function connect(): Sql[] {
    const opened = Array.from({ length: settings.connections }, () =>
      connectPostgres(url, { ...settings, connections: 1 }, () => {
        if (opened === connections && !closing) renew();
      }),
    );
    return opened;
  }

  function renew(): void {
    const replaced = connections;
    connections = connect();
    pool.replace(connections);
    for (const connection of replaced) void connection.end({ timeout: replacedSeconds });
    // While it ended, postgres.js may have connected once more for statements that were queued.
    setTimeout(() => {
      for (const connection of replaced) closeNow(connection);
    }, replacedSeconds * 4_000).unref();
  }

  let replacedStandbyAt = Number.NEGATIVE_INFINITY;
  const watched: StatementObserver = {
    succeeded: (statement) => observer?.succeeded(statement),
    failed(error) {
      const now = performance.now();
      if (isReadOnly(error) && now >= replacedStandbyAt + minStandbyIntervalMs) {
        replacedStandbyAt = now;
        renew();
      }
      observer?.failed(error);
    },
    shed: () => observer?.shed(),
  };

  function runAs<T extends Rows>(origin: Origin, call: Call, statement: Fragment<T>): Promise<RowList<T>> {
    // A call that revokes waits for a connection as long as it has time: revocations end an overload.
    const mayShed = observer !== undefined && !call.revokes;
    const running = runUnlessAborted(call, () => execute(pool, statement, { origin, observer: watched, mayShed }));
    return traced(call.span, running);
  }

  return {
    run: (call, statement) => runAs(originOf(call), call, statement),
    readOne(call, statement) {
      const isQuick = call.workspaceId !== undefined && !call.revokes;
      return runAs(isQuick ? lookupOriginOf(call) : originOf(call), call, statement);
    },
    readShared(call, statement) {
      const options = { origin: lookupOriginOf(call), observer: watched, mayShed: observer !== undefined };
      return traced(call?.span, execute(pool, statement, options).result);
    },
    runInBackground: (statement) =>
      execute(pool, statement, { origin: ownOrigin, observer: watched, mayShed: false }).result,
    begin: (work) => (connections[0] as Sql).begin(work) as Promise<Awaited<ReturnType<typeof work>>>,
    renew,
    usage: pool.usage,
    async close() {
      closing = true;
      await Promise.all(connections.map((connection) => connection.end({ timeout: 5 })));
    },
  };
}

/** A call without a workspace is the operator's: no other caller gets as far as a statement of its own. */
function originOf({ workspaceId, callerId, revokes }: Call): Origin {
  // Revocations of each key take turns: a stolen key that revokes all the time does not delay its own revocation.
  if (workspaceId !== undefined && revokes) return { class: "revocation", account: workspaceId, flow: callerId };
  if (workspaceId !== undefined) return { class: "ordinary", account: workspaceId };
  return { class: "operator", account: revokes ? "revocations" : "others" };
}

/**
 * Lookups are quick, so those of all workspaces share connections, in turn. Callers that are not authenticated yet are apart:
 * any client can send keys that have to be looked up. Each of their connections is a flow of its own, so a client that
 * sends thousands of keys delays itself, and others only by one turn.
 */
function lookupOriginOf(call: Call | undefined): Origin {
  if (call?.workspaceId !== undefined) return { class: "lookup", account: "workspaces", flow: call.workspaceId };
  return { class: "lookup", account: "strangers", flow: call?.connection };
}

function traced<T extends Rows>(span: Span | undefined, result: Promise<RowList<T>>): Promise<RowList<T>> {
  return span === undefined ? result : inSpan(span, { "db.system.name": "postgresql" }, result, describe);
}

/** The statement as it was sent, with $1 etc. in place of values. postgres.js adds it to errors, too. */
function describe(outcome: unknown): Attributes {
  const { statement, query, command } = outcome as Partial<RowList<Row[]>> & { query?: string };
  const text = statement?.string ?? query;
  return { ...(text && { "db.query.text": text.trim() }), ...(command && { "db.operation.name": command }) };
}
