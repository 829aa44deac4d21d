import type { JsonObject } from "@bufbuild/protobuf";
import postgres from "postgres";
import { fairRules, type PoolRules } from "./shares.js";

/** A pool of connections. Columns come back in camelCase, bigint as bigint. */
export type Sql = postgres.Sql<{ bigint: bigint }>;

/** Where a statement runs: in the pool, or inside a transaction. */
export type Statement = postgres.ISql<{ bigint: bigint }>;

/** What was read, with the snapshot that it was read in, as PostgreSQL writes it. */
export type InSnapshot<T> = T & { readonly snapshot: string };

/** A piece of a statement. */
export type Fragment = postgres.Fragment;

/** A parameter for a text[] column. */
export function textArrayParameter(sql: Statement, value: readonly string[]) {
  return sql.typed(value, textArray.to);
}

/** A parameter for a json column. `sql.json` would send jsonb, and the order of keys would be lost on the way. */
export function jsonParameter(sql: Statement, value: JsonObject) {
  return sql.typed(value, 114);
}

export interface PoolSettings {
  readonly connections: number;
  /** After this long, the server itself gives a statement up. */
  readonly statementMs: number;
  /** How the connections are shared; left out, whoever comes first has them. */
  readonly rules?: PoolRules;
  /** Settings of each session. */
  readonly more?: Readonly<Record<string, string>>;
}

/** Of the connections that calls use. */
export const poolSettings: PoolSettings = { connections: 10, statementMs: 10_000, rules: fairRules };

/** Is told what PostgreSQL warns of, in its own words. */
type WarningListener = (warning: string) => void;

const warningListeners = new WeakMap<Sql, Set<WarningListener>>();

/** Calls the listener for every warning on a connection of this pool. Returns how to end that. */
export function listenForWarnings(pool: Sql, listener: WarningListener): () => void {
  const listeners = warningListeners.get(pool);
  listeners?.add(listener);
  return () => listeners?.delete(listener);
}

/** Opens a pool; it connects when it is first asked. */
export function connectPostgres(url: string, settings: PoolSettings = poolSettings, onclose = () => {}): Sql {
  const listeners = new Set<WarningListener>();
  const pool: Sql = postgres(url, {
    ...socketOf(url),
    max: settings.connections,
    max_lifetime: null, // a connection that ends is one that broke
    onclose,
    connect_timeout: 5,
    // A short, constant pause between attempts to connect: the service is back soon after its database is.
    backoff: () => 0.1,
    keep_alive: 10,
    onnotice: (notice) => {
      if (notice["severity"] === "WARNING") for (const listener of listeners) listener(`${notice["message"]}`);
    },
    connection: {
      application_name: "latchkey",
      statement_timeout: settings.statementMs,
      idle_in_transaction_session_timeout: 10_000,
      ...settings.more,
    },
    // To learn the array types of the database, postgres.js would ask on each new connection, in a promise that nobody
    // holds: a connection that broke just then would end the process. The one array type that we use is told here.
    fetch_types: false,
    types: { bigint: postgres.BigInt, textArray },
    transform: { column: { from: postgres.toCamel } },
  });
  warningListeners.set(pool, listeners);
  return pool;
}

/**
 * The socket in the file system that a URL leads to, if it does, in the way that postgres.js wants to be told of it. As in
 * libpq, its folder stands in place of the host, percent-encoded: `postgres://user:password@%2Frun%2Fpostgresql/db`.
 */
export function socketOf(url: string): { readonly path?: string } {
  const { hostname, port } = new URL(url);
  const folder = decodeURIComponent(hostname);
  return folder.startsWith("/") ? { path: `${folder}/.s.PGSQL.${port || 5432}` } : {};
}

/** text[] of scopes, permissions, ids and times: none has a comma, quote, brace or backslash, which `parse` could not read. */
const textArray = {
  to: 1009,
  from: [1009],
  serialize: (words: readonly string[]) => `{${words.map((word) => `"${word.replace(/["\\]/g, "\\$&")}"`).join(",")}}`,
  parse: (text: string) =>
    text === "{}"
      ? []
      : text
          .slice(1, -1)
          .split(",")
          .map((word) => word.replace(/^"|"$/g, "")),
};

/** Whether a statement failed because a row with what this constraint keeps unique is there already. */
export function isUniqueViolation(error: unknown, constraint: string): boolean {
  return error instanceof postgres.PostgresError && error.code === "23505" && error.constraint_name === constraint;
}

/** What the driver or the operating system calls an error. */
export function errorCodeOf(error: unknown): string | undefined {
  const code = error instanceof Error && "code" in error ? error.code : undefined;
  return typeof code === "string" ? code : undefined;
}
