import type postgres from "postgres";
import { openSql } from "../../../commands/open-sql.js";

/**
 * One connection to a server that may crash at any moment. postgres.js 3.4.9 fetches types on each new connection and
 * does not handle a rejection of that query: the process ends if the server is lost meanwhile. So types are not
 * fetched.
 */
export function openSession(databaseUrl: string, options: postgres.Options<Record<string, never>> = {}): postgres.Sql {
  return openSql(databaseUrl, { max: 1, fetch_types: false, onnotice: () => {}, ...options });
}

/** Runs `work` in a new session, because an older one may have ended with its server. */
export async function useSession<T>(databaseUrl: string, work: (sql: postgres.Sql) => PromiseLike<T>): Promise<T> {
  const sql = openSession(databaseUrl, { connect_timeout: 5 });
  try {
    return await work(sql);
  } finally {
    await sql.end({ timeout: 1 });
  }
}
