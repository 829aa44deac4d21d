import type { Call } from "../call/call.js";
import type { Database } from "../storage/postgres/database.js";
import { jsonParameter, sql } from "../storage/postgres/sql.js";

/** How many verifications had each result. */
export interface Counts<Count = number> {
  readonly valid: Count;
  readonly rateLimited: Count;
  readonly usageExceeded: Count;
  readonly insufficientPermissions: Count;
  readonly disabled: Count;
  readonly expired: Count;
}

/** Verifications of one key, or of the keys of one identity. */
export interface CountRow extends Counts {
  /** The id of the key or the identity. */
  readonly resourceId: string;
  readonly workspaceId: string;
  /** Empty: all verifications. Otherwise those with this tag. */
  readonly tag: string;
}

/** Counts that are added as a whole, and only once. */
export interface CountBatch {
  /** Names the process that has counted. */
  readonly counterId: string;
  /** Higher than that of every earlier batch of the process. */
  readonly number: number;
  /** At most one for each resource and tag. */
  readonly rows: readonly CountRow[];
}

/** The hours that begin in a period. */
export interface Period {
  /** The beginning of an hour. */
  readonly from: Date;
  /** Not included. */
  readonly to: Date;
  /** The length of its parts, in UTC. */
  readonly granularity: "hour" | "day" | "month";
}

/** The verifications in one part of a period. */
export interface UsageRow extends Counts<bigint> {
  /** The beginning of the part. */
  readonly time: Date;
}

/** The maximum number of tags that one key or one identity has in one hour. Verifications with others lack them. */
export const maxTags = 100;

/**
 * The same for all keys and identities of a workspace together: the number of its rows with a tag. The quotas do not bound
 * it, because a verification is no change.
 */
const maxTagsOfWorkspace = 10_000;

/**
 * The maximum of a stored count. A client can report any number of verifications of its own keys. Sums over all results
 * and over the whole retention period must not exceed a bigint, or the statement would fail.
 */
export const maxCount = 100_000_000_000_000;

export type UsageStore = ReturnType<typeof createUsageStore>;

export function createUsageStore(db: Database) {
  return {
    /**
     * Adds counts to those of the present hour, unless this batch was added before. It is one statement, so the batch and
     * its number are stored together. An attempt whose outcome is unknown may still be running: the next one then waits
     * for the row of the counter, and finds the number.
     *
     * All processes lock rows in the same order, so there is no deadlock. New tags of a resource are left out if it has
     * `maxTags` in this hour. Processes that add tags at the same moment do not see each other's, so they can together
     * exceed that number, once. New tags are also left out if the workspace has `maxTagsOfWorkspace`: its row in
     * verification_tags is locked, so processes do not exceed that number.
     */
    async addCounts({ counterId, number, rows }: CountBatch): Promise<void> {
      await db.runInBackground(
        sql`
          with fresh as (
              insert into verification_counters as known (counter_id, last_batch, stored_at)
              values (${counterId}, ${number}, now())
              on conflict (counter_id) do update set last_batch = excluded.last_batch, stored_at = excluded.stored_at
              where known.last_batch < excluded.last_batch
              returning date_trunc('hour', stored_at, 'UTC') as hour),
            counted as materialized (
              select counted.*, hour, tag <> '' and (
                  select true from verification_counts as there
                  where there.resource_id = "resourceId" and there.tag = counted.tag and there.hour = fresh.hour
                ) is null as is_new_tag
              from fresh, json_to_recordset(${jsonParameter(rows)}) as counted (
                "resourceId" text collate "C", tag text collate "C", "workspaceId" text, valid bigint, "rateLimited" bigint,
                "usageExceeded" bigint, "insufficientPermissions" bigint, disabled bigint, expired bigint)),
            numbered as (
              select *, row_number() over (partition by "resourceId", is_new_tag order by tag) as position from counted),
            allowed as materialized (
              select *, row_number() over new_tags as place, count(*) over (partition by "workspaceId", is_new_tag) as places
              from numbered
              where not is_new_tag or position + (
                select count(*) from verification_counts as there
                where there.resource_id = "resourceId" and there.hour = numbered.hour and length(there.tag) > 0) <= ${maxTags}
              window new_tags as (partition by "workspaceId", is_new_tag order by "resourceId", tag)),
            tags as (
              insert into verification_tags as known (workspace_id, hour, new_tags)
              select "workspaceId", hour, count(*) from allowed where is_new_tag group by "workspaceId", hour order by "workspaceId"
              on conflict (workspace_id) do update set hour = greatest(known.hour, excluded.hour),
                new_tags = excluded.new_tags + case when known.hour < excluded.hour then 0 else known.new_tags end
              returning workspace_id, new_tags)
          insert into verification_counts as stored (resource_id, tag, hour, workspace_id, valid, rate_limited,
            usage_exceeded, insufficient_permissions, disabled, expired)
          select "resourceId", tag, hour, "workspaceId", valid, "rateLimited", "usageExceeded", "insufficientPermissions",
            disabled, expired
          from allowed
          where not is_new_tag
            or place - places + (select new_tags from tags where workspace_id = "workspaceId") <= ${maxTagsOfWorkspace}
          order by "resourceId", tag
          on conflict (resource_id, tag, hour) do update set
            valid = least(stored.valid + excluded.valid, ${maxCount}),
            rate_limited = least(stored.rate_limited + excluded.rate_limited, ${maxCount}),
            usage_exceeded = least(stored.usage_exceeded + excluded.usage_exceeded, ${maxCount}),
            insufficient_permissions =
              least(stored.insufficient_permissions + excluded.insufficient_permissions, ${maxCount}),
            disabled = least(stored.disabled + excluded.disabled, ${maxCount}),
            expired = least(stored.expired + excluded.expired, ${maxCount})`,
      );
    },

    /**
     * The parts of a period in which a key, or the keys of an identity, were verified, in order.
     *
     * @param period undefined: the last 24 hours, by hour
     * @param tag empty: all verifications
     */
    async readUsage(
      call: Call,
      workspaceId: string,
      resourceId: string,
      period: Period | undefined,
      tag: string,
    ): Promise<readonly UsageRow[]> {
      const hours = period
        ? sql`hour >= ${period.from} and hour < ${period.to}`
        : sql`hour >= date_trunc('hour', now() - interval '1 day', 'UTC')`;
      return db.run(
        call,
        sql<UsageRow[]>`
          select date_trunc(${period?.granularity ?? "hour"}, hour, 'UTC') as time, sum(valid)::bigint as valid,
            sum(rate_limited)::bigint as rate_limited, sum(usage_exceeded)::bigint as usage_exceeded,
            sum(insufficient_permissions)::bigint as insufficient_permissions, sum(disabled)::bigint as disabled,
            sum(expired)::bigint as expired
          from verification_counts
          where workspace_id = ${workspaceId} and resource_id = ${resourceId} and tag = ${tag} and ${hours}
          group by 1 order by 1`,
      );
    },
  };
}
