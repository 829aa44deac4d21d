import { quotaExceeded } from "../errors.js";
import type { Fragment, Statement } from "../storage/postgres/connection.js";

/** How much one workspace may store. */
export interface Quotas {
  readonly keys: number;
  readonly identities: number;
  /** Of keys, identities and audit events together. */
  readonly bytes: number;
}

/** What a change adds to; the bytes of its audit event it adds always. */
export interface Growth {
  readonly keys?: boolean;
  /** A condition, where it depends on the state of the database. */
  readonly identities?: boolean | Fragment;
}

/**
 * Which quota stands in the way of a change, as an expression of its statement; null if none does. In the statement, so that
 * it costs no round trip; the counts are kept by a trigger. Statements that run at the same time do not see each other's
 * rows, so a quota can be exceeded by as many as there are. Not an exception of SQL: PostgreSQL would log each.
 */
export function reachedQuota(sql: Statement, quotas: Quotas, workspaceId: string, growth: Growth): Fragment {
  const { keys = false, identities = false } = growth;
  // What is not asked for has a quota that nobody reaches.
  const mostKeys = keys ? quotas.keys : Number.MAX_SAFE_INTEGER;
  const mostIdentities = identities ? quotas.identities : Number.MAX_SAFE_INTEGER;
  const moreIdentities = typeof identities === "boolean" ? sql`` : sql`and ${identities}`;
  return sql`(
    select case when sum(keys) >= ${mostKeys}::bigint then 'keys'
      when sum(identities) >= ${mostIdentities}::bigint ${moreIdentities} then 'identities'
      when sum(bytes) >= ${quotas.bytes}::bigint then 'bytes' end
    from usage where workspace_id = ${workspaceId})`;
}

/** What a statement says that asked for `reachedQuota`. */
export interface QuotaCheck {
  readonly reached: keyof Quotas | null;
}

/** Throws if a quota was in the way, in which case the statement has changed nothing. */
export function refuseBeyondQuota(quotas: Quotas, check: QuotaCheck | undefined): void {
  if (check?.reached) throw quotaExceeded(check.reached, quotas[check.reached]);
}
