import postgres from "postgres";
import { socketOf } from "../src/storage/postgres/connection.js";

/** Opens connections by postgres.js, which does not itself understand the URL of a socket. */
export function openSql<T extends Record<string, postgres.PostgresType> = Record<string, never>>(
  url: string,
  options: postgres.Options<T> = {},
) {
  return postgres<T>(url, { ...socketOf(url), ...options });
}
