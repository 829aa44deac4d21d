import type postgres from "postgres";
import { openSql } from "../../../commands/open-sql.js";

/**
 * One connection to a server that may be lost at any moment. postgres.js 3.4.9 asks for types on each new connection, waits for the
 * answer nowhere, and so ends the process if the server is lost meanwhile: none are asked for.
 */
export function openSession(databaseUrl: string, options: postgres.Options<Record<string, never>> = {}): postgres.Sql {
  return openSql(databaseUrl, { max: 1, fetch_types: false, onnotice: () => {}, ...options });
}

/** Does something in a session of its own, which is made for it: an older one may have ended with its server. */
export async function useSession<T>(databaseUrl: string, work: (sql: postgres.Sql) => PromiseLike<T>): Promise<T> {
  const sql = openSession(databaseUrl, { connect_timeout: 5 });
  try {
    return await work(sql);
  } finally {
    await sql.end({ timeout: 1 });
  }
}
