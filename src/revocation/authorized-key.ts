import type { AuthorizedKey } from "../call/context.js";
import { errorCodeOf, type Fragment, type Statement, textArrayParameter } from "../storage/postgres/connection.js";

/**
 * A condition that makes a statement fail unless the calling key is still as it was when the call was authorized.
 * PostgreSQL evaluates it once, as late as possible, so that a statement that waited for a lock is refused, too.
 *
 * @param key undefined for the operator, who cannot be revoked
 */
export function callerUnchanged(sql: Statement, key: AuthorizedKey | undefined): Fragment {
  if (key === undefined) return sql`true`;
  // A subquery is evaluated even if there are no rows to apply the condition to.
  return sql`
    (select require_caller_unchanged(${key.keyId}, ${textArrayParameter(sql, key.scopes)}, ${key.expiresAt}::timestamptz))`;
}

/**
 * Whether a statement failed because the calling key is no longer as it was authorized. The statement had no effect.
 */
export function isCallerChanged(error: unknown): boolean {
  return errorCodeOf(error) === "LK001";
}
