// The parts of postgres.js 3.4.9 that it does not export. Listed in docs/architecture/library-internals.md.
import type { PendingQuery, Row, RowList } from "postgres";
import type { Sql } from "./connection.js";

/** Any statement of postgres.js. */
type Query = PendingQuery<Row[]>;

interface QueryInternals {
  /** Whether PostgreSQL runs this statement now. Several may be in flight on one connection; one of them is active. */
  readonly active: boolean;
  /** Sends a cancel request on a new connection. The public `cancel()` drops this promise: its rejection would be unhandled. */
  canceller(query: Query): Promise<void>;
}

interface PoolInternals {
  /** Closes all connections at once, those that connected after `end()` included. */
  close(): Promise<void>;
}

const internalsOf = (query: Query) => query as Query & QueryInternals;

/** Whether PostgreSQL runs this statement now. */
export function isActive(query: Query): boolean {
  return internalsOf(query).active;
}

/** Sends a cancel request for the active statement. It may be lost, or reach the next statement on the connection. */
export function requestCancel(query: Query): void {
  internalsOf(query)
    .canceller(query)
    .catch(() => {});
}

/** Whether a result belongs to this statement. A connection that broke can leave rows of another one. */
export function isResultOf(result: RowList<Row[]>, query: Query): boolean {
  return "statement" in query && query.statement === result.statement;
}

export function closeNow(connection: Sql): void {
  void (connection as Sql & PoolInternals).close();
}

/** More than V8 needs: after 10 to 50 lookups of inherited properties, it optimizes the object that they are inherited from. */
const lookups = 1_000;

const optimizedClasses = new WeakSet<object>();

/**
 * Lets V8 optimize the class of a statement or of a result. Both classes have a static getter with a computed name, so V8 keeps their
 * static properties in a dictionary. Node 20 then begins to compile their constructors again and again, and gives up each time.
 * Code that is not optimized creates the closures of a statement in the old generation, where they keep the statement and its
 * rows until the next major garbage collection. V8 replaces the dictionary when properties are looked up through an object that
 * inherits from the class.
 *
 * In a loop of its own, a statement took 31 instead of 50 µs of CPU time (arm64), and 2.8 MB of 16 MB less survived each minor
 * garbage collection.
 */
export function optimizeClassOf({ constructor: itsClass }: object): void {
  if (optimizedClasses.has(itsClass)) return;
  optimizedClasses.add(itsClass);
  const heir = Object.create(itsClass);
  for (let count = 0; count < lookups; count++) void heir.absent;
}

/** Fails at start-up, and not at the first cancelled call, if a new version has changed one of these. */
export function assertInternals(sql: Sql): void {
  const query = sql`select`;
  const { active, canceller } = internalsOf(query);
  const { close } = sql as Sql & Partial<PoolInternals>;
  if (active !== false || typeof canceller !== "function" || !("statement" in query) || typeof close !== "function") {
    throw new Error("postgres.js is not version 3.4.9: src/storage/postgres/internals.ts needs to be checked");
  }
}
