import type { AuthorizedKey } from "../call/context.js";
import { errorCodeOf, type Fragment, type Statement, textArrayParameter } from "../storage/postgres/connection.js";

/**
 * A condition that makes a statement fail unless the calling key still is as it was authorized. It is evaluated once, as
 * late as possible: a statement that waited for a lock is refused, too.
 *
 * @param key undefined for the operator, who cannot be revoked
 */
export function callerUnchanged(sql: Statement, key: AuthorizedKey | undefined): Fragment {
  if (key === undefined) return sql`true`;
  // A subquery, because then it is evaluated whether or not there are rows to apply it to.
  return sql`
    (select require_caller_unchanged(${key.keyId}, ${textArrayParameter(sql, key.scopes)}, ${key.expiresAt}::timestamptz))`;
}

/** Whether a statement failed because the calling key is not as it was authorized. Nothing of it was kept. */
export function isCallerChanged(error: unknown): boolean {
  return errorCodeOf(error) === "LK001";
}
