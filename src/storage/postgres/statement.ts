import type { PendingQuery, Row, RowList } from "postgres";
import { serviceOverloaded } from "../../errors.js";
import { errorCodeOf, listenForWarnings, type Sql } from "./connection.js";
import { OutcomeUnknown } from "./errors.js";
import type { Pool, PooledConnection, PoolWaiter } from "./pool.js";
import type { Origin } from "./shares.js";

type Statement = PendingQuery<Row[]>;

/** What postgres.js 3.4.9 keeps to itself about a statement. */
interface Inside {
  /** Whether it is the one that runs on its connection. */
  readonly active: boolean;
  /** Sends a request to cancel it, on a connection made for that. */
  canceller(statement: Statement): Promise<void>;
}

/** How often a statement is run again that somebody else's trouble has ended. */
const mostRepeats = 3;

/** A request to cancel may come between two steps of a statement, and is lost then; so it is repeated. */
const cancelEveryMs = 200;

/** What was sent, but does not run yet, cannot be cancelled; it is looked at again after this long. */
const lookEveryMs = 20;

/**
 * Makes a statement of postgres.js one that can be relied on. It gets a connection from the lanes when somebody waits for
 * it. Its result is whole, or it fails. It also fails if PostgreSQL warned while it ran: its outcome is unknown then, and
 * it is not run again. That holds for all statements, because none of ours makes PostgreSQL warn otherwise. It is run again if it fell victim to a deadlock, or to a request to cancel that
 * was meant for the one before it: of either, nothing was kept, because a statement is a transaction. And it can be
 * cancelled at any time: postgres.js alone would lose a connection over a statement that has not been sent yet, mix up
 * the results of those that were sent together, and end the process if the request cannot be sent.
 *
 * There is no `sql.begin` anywhere but in migrations: a change over several tables is one statement. Inside a
 * transaction, postgres.js writes to a connection that has just broken, and that ends the process.
 *
 * @param statement is not sent itself; it may also be a part of another
 * @param write the same statement, for the connection that it is to be sent on
 * @param watch is told how it ends; without one, it waits for a connection for as long as it takes
 */
export function reliable(
  statement: Statement,
  lanes: Pool,
  write: (sql: Sql) => Statement,
  watch?: StatementWatch,
): Statement {
  let cancelled = false;
  let errand: Errand | undefined;
  statement.cancel = () => {
    cancelled = true;
    errand?.cancel();
  };
  // biome-ignore lint/suspicious/noThenProperty: a statement is sent when somebody waits for it
  statement.then = (onResult, onError) => {
    if (errand === undefined && cancelled) return Promise.reject(new Cancelled()).then(onResult, onError);
    errand ??= send(lanes, write, watch, patient.has(statement), origins.get(statement));
    return errand.result.then(onResult, onError);
  };
  return statement;
}

/** Is told how statements end. */
export interface StatementWatch {
  succeeded(statement: string): void;
  failed(error: unknown): void;
  /** It would have had to wait for a connection for too long. */
  turnedAway(): void;
}

const patient = new WeakSet<object>();

/** A statement that is not turned away, however long it has to wait: nobody would ask again. */
export function patiently<T extends object>(statement: T): T {
  patient.add(statement);
  return statement;
}

const origins = new WeakMap<object, Origin>();

/** A statement that takes its turn, and its share of the connections, with others of this origin. */
export function withOrigin<T extends object>(statement: T, origin: Origin): T {
  origins.set(statement, origin);
  return statement;
}

/** A statement that somebody waits for. */
interface Errand {
  readonly result: Promise<RowList<Row[]>>;
  cancel(): void;
}

function send(
  lanes: Pool,
  write: (sql: Sql) => Statement,
  watch: StatementWatch | undefined,
  isPatient: boolean,
  origin: Origin | undefined,
): Errand {
  let repeatsLeft = mostRepeats;
  let running: { readonly statement: Statement & Inside; readonly lane: PooledConnection } | undefined;
  let cancelled = false;
  let resolve: (result: RowList<Row[]>) => void;
  let reject: (error: unknown) => void;
  const result = new Promise<RowList<Row[]>>((...settle) => {
    [resolve, reject] = settle;
  });

  function attempt(lane: PooledConnection): void {
    const statement = write(lane.sql) as Statement & Inside;
    running = { statement, lane };
    let warning: string | undefined;
    // Of the statements that were sent on this connection, the active one is meant. While it connects, none is.
    const stopListening = listenForWarnings(lane.sql, (heard) => {
      if (statement.active) warning ??= heard;
    });
    statement.then(
      (found) => {
        leave(lane);
        stopListening();
        dropHoles(found);
        if (warning !== undefined) {
          fail(new OutcomeUnknown(warning, found.statement.string));
        } else if (isWhole(found, statement)) {
          watch?.succeeded(found.statement.string);
          resolve(found);
        } else reject(new ConnectionBroken("the connection broke before the result was whole"));
      },
      (error) => {
        leave(lane);
        stopListening();
        if (cancelled || repeatsLeft-- === 0 || !isVictim(error, lane)) fail(error);
        else lanes.acquire(waiter);
      },
    );
  }

  function fail(error: unknown): void {
    watch?.failed(error);
    reject(error);
  }

  function leave(lane: PooledConnection): void {
    running = undefined;
    lanes.release(lane);
  }

  function stop(): void {
    if (running === undefined) return;
    const { statement, lane } = running;
    const { active } = statement;
    if (active) {
      lane.cancelSent = true;
      statement.canceller(statement).catch(() => {});
    }
    setTimeout(stop, active ? cancelEveryMs : lookEveryMs).unref();
  }

  function refuse(): void {
    watch?.turnedAway();
    reject(serviceOverloaded());
  }

  const waiter: PoolWaiter =
    watch === undefined || isPatient
      ? { onAcquired: attempt, origin }
      : { onAcquired: attempt, onRejected: refuse, origin };
  lanes.acquire(waiter);
  return {
    result,
    cancel() {
      cancelled = true;
      if (lanes.cancel(waiter)) reject(new Cancelled());
      else stop();
    },
  };
}

/**
 * Where a statement was cancelled after some of its rows had arrived, postgres.js 3.4.9 goes on counting from there: the
 * rows of the next result on that connection come behind as many places that nothing was ever put in. The result is its
 * own, and complete. Rows that are left over from a connection that broke are no such places, and stay.
 */
function dropHoles(result: RowList<Row[]>): void {
  const rows: Row[] = result;
  const holes = rows.findIndex((_row, place) => place in rows);
  if (holes > 0) rows.splice(0, holes);
}

/** A result is whole if the statement ended, the result is its own, and every row is there. */
function isWhole(result: RowList<Row[]>, asked: object): boolean {
  const own = "statement" in asked && asked.statement === result.statement;
  return own && result.command !== null && (result.length === 0 || result.length === result.count);
}

/** 40P01: a deadlock. 57014: cancelled, or out of time; of the latter, the next attempt will be, too. */
function isVictim(error: unknown, lane: PooledConnection): boolean {
  const code = errorCodeOf(error);
  return code === "40P01" || (code === "57014" && lane.cancelSent);
}

/** Nothing can be said of what was asked. */
class ConnectionBroken extends Error {
  override readonly name = "ConnectionBroken";
  readonly code = "CONNECTION_CLOSED";
}

/** A statement was cancelled before it was sent. */
class Cancelled extends Error {
  override readonly name = "Cancelled";
  override readonly message = "the statement was cancelled before it was sent";
}
