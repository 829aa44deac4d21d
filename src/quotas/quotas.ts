import { quotaExceeded } from "../errors.js";
import { type Fragment, sql } from "../storage/postgres/sql.js";

/** The quotas of one workspace. */
export interface Quotas {
  readonly keys: number;
  readonly identities: number;
  /** Of keys, identities, audit events and responses for idempotency keys together. */
  readonly bytes: number;
}

/** Which counts a change increases. Every change adds the bytes of its audit event. */
export interface Growth {
  /** True for one. */
  readonly keys?: boolean | number;
  /** An SQL condition or number if it depends on the state of the database. */
  readonly identities?: boolean | Fragment | { readonly atMost: number; readonly number: Fragment };
}

/**
 * An SQL expression for the statement of a change: the first quota that is reached, or null. Part of the statement, so
 * that it costs no round trip. A trigger maintains the counts. Concurrent statements do not see each other's rows, so
 * each of them can exceed a quota by its rows. Not an SQL exception, because PostgreSQL would log each one.
 */
export function reachedQuota(quotas: Quotas, workspaceId: string, growth: Growth): Fragment {
  const { keys = false, identities = false } = growth;
  // Counts that do not grow get a quota that cannot be reached.
  const maxKeys = keys === false || keys === 0 ? Number.MAX_SAFE_INTEGER : quotas.keys - Number(keys);
  return sql`(
    select case when sum(keys) > ${maxKeys}::bigint then 'keys'
      when ${exceedsIdentities(quotas.identities, identities)} then 'identities'
      when sum(bytes) >= ${quotas.bytes}::bigint then 'bytes' end
    from usage where workspace_id = ${workspaceId})`;
}

function exceedsIdentities(max: number, growth: NonNullable<Growth["identities"]>): Fragment {
  if (growth === false) return sql`false`;
  if (growth === true) return sql`sum(identities) >= ${max}::bigint`;
  if (!("atMost" in growth)) return sql`sum(identities) >= ${max}::bigint and ${growth}`;
  // The number is counted only if it matters.
  const { atMost, number } = growth;
  return sql`
    case when sum(identities) > ${max - atMost}::bigint then ${number} > 0 and sum(identities) + ${number} > ${max}::bigint end`;
}

/** The result row of a statement that contains `reachedQuota`. */
export interface QuotaCheck {
  readonly reached: keyof Quotas | null;
}

/** Throws if a quota is reached. The statement has then changed nothing. */
export function refuseBeyondQuota(quotas: Quotas, check: QuotaCheck | undefined): void {
  if (check?.reached) throw quotaExceeded(check.reached, quotas[check.reached]);
}
