import type { PendingQuery, Row, RowList } from "postgres";
import { serviceOverloaded } from "../../errors.js";
import { errorCodeOf, listenForWarnings } from "./connection.js";
import { OutcomeUnknown } from "./errors.js";
import { isActive, isResultOf, optimizeClassOf, requestCancel } from "./internals.js";
import type { Pool, PooledConnection, PoolWaiter } from "./pool.js";
import type { Origin } from "./shares.js";
import { type Fragment, type Rows, send } from "./sql.js";

/** A statement that waits for a connection or runs. */
export interface Execution<T extends Rows> {
  readonly result: Promise<RowList<T>>;
  /** The result rejects soon. A change that PostgreSQL has already committed stays. */
  cancel(): void;
}

/** Receives the outcome of every statement. */
export interface StatementObserver {
  succeeded(statement: string): void;
  failed(error: unknown): void;
  /** The statement was rejected because it waited for a connection for too long. */
  shed(): void;
}

export interface ExecutionOptions {
  readonly origin: Origin;
  readonly observer?: StatementObserver | undefined;
  /** False: the statement waits for a connection for as long as it takes. */
  readonly mayShed: boolean;
}

/** How often a statement is retried after a deadlock or a stray cancel request. */
const maxRetries = 3;

/** A cancel request that arrives between two steps of a statement has no effect, so it is repeated. */
const cancelIntervalMs = 200;

/** A statement that was sent but is not active yet cannot be cancelled. It is checked again after this time. */
const activeCheckIntervalMs = 20;

/**
 * Runs a statement on a connection of the pool.
 *
 * - The result is complete, or the statement fails. postgres.js alone can resolve with a part of the rows after a
 *   connection broke.
 * - A warning of PostgreSQL while the statement runs makes its outcome unknown: it fails, without a retry. None of our
 *   statements causes warnings by itself.
 * - A deadlock is retried, and so is a cancel request that was meant for the statement before on the same connection.
 *   Neither leaves anything behind, because a statement is a transaction.
 * - It can be cancelled at any time. postgres.js alone would close the connection over a statement that was not sent yet,
 *   mix up the results of pipelined statements, and end the process if the cancel request cannot be sent.
 *
 * Changes never use `sql.begin`: a change over several tables is one statement. Inside a transaction, postgres.js writes to
 * a connection that has just broken, and that ends the process.
 */
export function execute<T extends Rows>(
  pool: Pool,
  statement: Fragment<T>,
  { origin, observer, mayShed }: ExecutionOptions,
): Execution<T> {
  let retriesLeft = maxRetries;
  let running: { readonly query: PendingQuery<Row[]>; readonly connection: PooledConnection } | undefined;
  let cancelled = false;
  let resolve: (result: RowList<T>) => void;
  let reject: (error: unknown) => void;
  const result = new Promise<RowList<T>>((...settle) => {
    [resolve, reject] = settle;
  });

  function run(connection: PooledConnection): void {
    const query = send(connection.sql, statement);
    running = { query, connection };
    optimizeClassOf(query);
    let warning: string | undefined;
    // A warning belongs to the active statement. While the connection is being opened, none is active.
    const stopListening = listenForWarnings(connection.sql, (text) => {
      if (isActive(query)) warning ??= text;
    });
    query.then(
      (rows) => {
        release(connection);
        stopListening();
        optimizeClassOf(rows);
        dropHoles(rows);
        if (warning !== undefined) {
          fail(new OutcomeUnknown(warning, rows.statement.string));
        } else if (isComplete(rows, query)) {
          observer?.succeeded(rows.statement.string);
          resolve(rows as unknown as RowList<T>);
        } else reject(new ConnectionBroken("the connection broke before the result was complete"));
      },
      (error) => {
        release(connection);
        stopListening();
        if (cancelled || retriesLeft-- === 0 || !isRetryable(error, connection)) fail(error);
        else pool.acquire(waiter);
      },
    );
  }

  function fail(error: unknown): void {
    observer?.failed(error);
    reject(error);
  }

  function release(connection: PooledConnection): void {
    running = undefined;
    pool.release(connection);
  }

  function stop(): void {
    if (running === undefined) return;
    const { query, connection } = running;
    const active = isActive(query);
    if (active) {
      connection.cancelSent = true;
      requestCancel(query);
    }
    setTimeout(stop, active ? cancelIntervalMs : activeCheckIntervalMs).unref();
  }

  function shed(): void {
    observer?.shed();
    reject(serviceOverloaded());
  }

  const waiter: PoolWaiter = mayShed ? { onAcquired: run, onRejected: shed, origin } : { onAcquired: run, origin };
  pool.acquire(waiter);
  return {
    result,
    cancel() {
      cancelled = true;
      if (pool.cancel(waiter)) reject(new Cancelled());
      else stop();
    },
  };
}

/**
 * When a statement is cancelled after some of its rows have arrived, postgres.js 3.4.9 continues its row count with the
 * next result on that connection: that result begins with as many array holes. It is complete otherwise. Rows of a broken
 * connection are no holes, and stay.
 */
function dropHoles(result: RowList<Row[]>): void {
  const rows: Row[] = result;
  const holes = rows.findIndex((_row, index) => index in rows);
  if (holes > 0) rows.splice(0, holes);
}

/** Whether the statement ended, the result is its own, and no row is missing. */
function isComplete(result: RowList<Row[]>, query: PendingQuery<Row[]>): boolean {
  return (
    isResultOf(result, query) && result.command !== null && (result.length === 0 || result.length === result.count)
  );
}

/** 40P01: a deadlock. 57014: cancelled, or timed out; a timeout would occur again. */
function isRetryable(error: unknown, connection: PooledConnection): boolean {
  const code = errorCodeOf(error);
  return code === "40P01" || (code === "57014" && connection.cancelSent);
}

/** The outcome of the statement is unknown. */
class ConnectionBroken extends Error {
  override readonly name = "ConnectionBroken";
  readonly code = "CONNECTION_CLOSED";
}

/** A statement was cancelled before it was sent. */
class Cancelled extends Error {
  override readonly name = "Cancelled";
  override readonly message = "the statement was cancelled before it was sent";
}
