import type postgres from "postgres";
import { openSql } from "../../commands/open-sql.js";

/** Does something in a session of its own, which is made for it: an older one may have ended with its server. */
export async function useSession<T>(databaseUrl: string, work: (sql: postgres.Sql) => PromiseLike<T>): Promise<T> {
  const sql = openSql(databaseUrl, { max: 1, connect_timeout: 5, onnotice: () => {} });
  try {
    return await work(sql);
  } finally {
    await sql.end({ timeout: 1 });
  }
}
