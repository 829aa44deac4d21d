import postgres from "postgres";
import { socketOf } from "../src/storage/postgres/connection.js";

/** Opens postgres.js connections. postgres.js itself does not understand the URL of a Unix socket. */
export function openSql<T extends Record<string, postgres.PostgresType> = Record<string, never>>(
  url: string,
  options: postgres.Options<T> = {},
) {
  return postgres<T>(url, { ...socketOf(url), ...options });
}
