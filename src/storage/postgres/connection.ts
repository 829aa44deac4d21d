import postgres from "postgres";
import { fairRules, type PoolRules } from "./shares.js";
import { textArrayType } from "./sql.js";

/** A pool of connections. Columns come back in camelCase, bigint as bigint. */
export type Sql = postgres.Sql<{ bigint: bigint }>;

/** A row with the snapshot it was read in, as text of PostgreSQL. */
export type InSnapshot<T> = T & { readonly snapshot: string };

export interface PoolSettings {
  readonly connections: number;
  /** The `statement_timeout` of PostgreSQL. */
  readonly statementMs: number;
  /** How accounts share the connections. Absent: first come, first served. */
  readonly rules?: PoolRules;
  /** Further parameters of each session, such as `plan_cache_mode`. */
  readonly parameters?: Readonly<Record<string, string>>;
}

/** The connections that calls use. */
export const poolSettings: PoolSettings = { connections: 10, statementMs: 10_000, rules: fairRules };

/**
 * How PostgreSQL writes times. A database or a role may have other settings. PgBouncer passes these two on, compares them with
 * what PostgreSQL reports, and accepts no others.
 */
const timeSettings = { TimeZone: "UTC", DateStyle: "ISO, MDY" };

/** Receives the text of a warning of PostgreSQL. */
type WarningListener = (warning: string) => void;

/**
 * Those of the statements in flight, a few per connection. Not a Set: V8 moves the entries of a Set that changes all the time
 * to new tables, and an earlier table that is in the old generation keeps its entries and the next table until the next major
 * garbage collection. With Sets, 3.0 MB of 14 MB survived a minor collection under calls of getIdentity, instead of 2.2 MB.
 */
const warningListeners = new WeakMap<Sql, WarningListener[]>();

/** Calls the listener for every warning on these connections. Returns a function that removes the listener. */
export function listenForWarnings(pool: Sql, listener: WarningListener): () => void {
  const listeners = warningListeners.get(pool) ?? [];
  listeners.push(listener);
  return () => void listeners.splice(listeners.indexOf(listener), 1);
}

/** Creates connections, which are opened with the first statement. */
export function connectPostgres(url: string, settings: PoolSettings = poolSettings, onclose = () => {}): Sql {
  const listeners: WarningListener[] = [];
  const pool: Sql = postgres(url, {
    ...socketOf(url),
    max: settings.connections,
    max_lifetime: null, // so that a closed connection is always a broken one
    onclose,
    connect_timeout: 5,
    // A short, constant pause between attempts to connect: the service recovers soon after its database.
    backoff: () => 0.1,
    keep_alive: 10,
    onnotice: (notice) => {
      if (notice["severity"] === "WARNING") for (const listener of listeners) listener(`${notice["message"]}`);
    },
    connection: {
      application_name: "latchkey",
      statement_timeout: settings.statementMs,
      idle_in_transaction_session_timeout: 10_000,
      ...timeSettings,
      ...settings.parameters,
    },
    // With fetch_types, postgres.js queries the array types on each new connection, in a promise without a handler: a
    // connection that breaks at that moment would end the process. The only array type in use is declared here.
    fetch_types: false,
    types: { bigint: postgres.BigInt, textArray, date },
    transform: { column: { from: postgres.toCamel } },
  });
  warningListeners.set(pool, listeners);
  return pool;
}

/**
 * The option of postgres.js for a URL with a Unix socket. As in libpq, the folder of the socket is percent-encoded in place of
 * the host: `postgres://user:password@%2Frun%2Fpostgresql/db`.
 */
export function socketOf(url: string): { readonly path?: string } {
  const { hostname, port } = new URL(url);
  const folder = decodeURIComponent(hostname);
  return folder.startsWith("/") ? { path: `${folder}/.s.PGSQL.${port || 5432}` } : {};
}

/**
 * timestamptz. The parser of postgres.js takes the year 0049 for 2049, and an offset with seconds, as that of Berlin in 1850, for
 * no time at all.
 */
const date = {
  to: 1184,
  from: [1184],
  serialize: (time: Date) => time.toISOString(),
  parse(text: string): Date {
    const time = new Date(text.replace(" ", "T").replace(/\+00$/, "Z"));
    if (Number.isNaN(time.getTime()))
      throw new RangeError(`the database returned a time that is not ISO in UTC: ${text}`);
    return time;
  },
};

/** text[] of scopes, permissions, ids and names. None is null. PostgreSQL quotes items with special characters. */
const textArray = {
  to: textArrayType,
  from: [textArrayType],
  serialize: (items: readonly string[]) => `{${items.map((item) => `"${item.replace(/["\\]/g, "\\$&")}"`).join(",")}}`,
  parse(text: string): string[] {
    if (text === "{}") return [];
    if (!text.includes('"')) return text.slice(1, -1).split(",");
    return [...text.slice(1, -1).matchAll(/"((?:[^"\\]|\\.)*)"|[^,]+/gs)].map(([item, quoted]) =>
      quoted === undefined ? item : quoted.replace(/\\(.)/gs, "$1"),
    );
  },
};

/** Whether a statement violated this unique constraint. */
export function isUniqueViolation(error: unknown, constraint: string): boolean {
  return error instanceof postgres.PostgresError && error.code === "23505" && error.constraint_name === constraint;
}

/** The code that PostgreSQL, the driver or the operating system gave an error. */
export function errorCodeOf(error: unknown): string | undefined {
  const code = error instanceof Error && "code" in error ? error.code : undefined;
  return typeof code === "string" ? code : undefined;
}
