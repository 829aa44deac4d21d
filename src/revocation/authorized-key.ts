import type { AuthorizedKey } from "../call/context.js";
import { errorCodeOf } from "../storage/postgres/connection.js";
import { type Fragment, sql, textArrayParameter } from "../storage/postgres/sql.js";
import type { KeyState } from "./key-state.js";

/** The code of require_caller_unchanged(). */
const callerChangedCode = "LK001";

/**
 * A condition that makes a statement fail unless the calling key is still as it was when the call was authorized.
 * PostgreSQL evaluates it once, as late as possible, so that a statement that waited for a lock is refused, too.
 *
 * @param key undefined for the operator, who cannot be revoked
 */
export function callerUnchanged(key: AuthorizedKey | undefined): Fragment {
  if (key === undefined) return sql`true`;
  // A subquery is evaluated even if there are no rows to apply the condition to.
  return sql`
    (select require_caller_unchanged(${key.keyId}, ${textArrayParameter(key.scopes)}, ${key.expiresAt}::timestamptz))`;
}

/** The same condition for the present state of the calling key in memory. Undefined: the key does not exist. */
export function isCallerUnchanged(present: KeyState | undefined, { scopes, expiresAt }: AuthorizedKey): boolean {
  if (present === undefined) return false;
  const { key, workspaceEnabled } = present;
  return (
    workspaceEnabled &&
    key.enabled &&
    !key.ended &&
    key.expiresAt?.getTime() === expiresAt?.getTime() &&
    // A cached key has the same array each time.
    (key.scopes === scopes ||
      (key.scopes.length === scopes.length && key.scopes.every((scope, at) => scope === scopes[at])))
  );
}

/** The error of a call that found its calling key changed before it had any effect. */
export class CallerChanged extends Error {
  override readonly name = "CallerChanged";
  override readonly message = "the calling key is not as it was authorized";
  readonly code = callerChangedCode;
}

/** Whether a call failed because the calling key is no longer as it was authorized. Its last step had no effect. */
export function isCallerChanged(error: unknown): boolean {
  return errorCodeOf(error) === callerChangedCode;
}
