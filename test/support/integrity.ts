import type { PendingQuery, Row, Sql } from "postgres";

/** A deleted workspace loses the texts of its rows and events in the background, without events of their own. */
const isLive = "workspace_id in (select workspace_id from workspaces where deleted_at is null)";

/**
 * Events, each with the previous event of the same resource. Credits are spent without an event, so their events form no chain.
 */
const chain = `
  select *, lag(after) over by_resource as previous_after, lag(type) over by_resource as type_before,
    row_number() over (partition by resource_id order by position desc) = 1 as is_last
  from audit_events where type <> 'key.updateCredits' and ${isLive} window by_resource as (partition by resource_id order by position)`;

/** Invariants of a database: the rule, and a query for its violations. */
export type Rules = Readonly<Record<string, (sql: Sql) => PendingQuery<Row[]>>>;

/** The sequences of events that one request can create, as regular expressions. */
const wholes = [
  // One key, or an import. The identities that did not exist come first, and the credits last.
  "(identity.create )*key.create( key.create)*( key.updateCredits)*",
  "(identity.create )?key.update( key.updateCredits)?",
  "key.updateCredits",
  "key.create( key.updateCredits)? key.reroll",
  // Several if their API was deleted.
  "key.delete( key.delete)*",
  "(identity|role|override).(create|update|delete)",
  "(api|permission).(create|delete)",
  "workspace.create key.create",
  "workspace.(disable|enable|update|delete)",
].map((whole) => `^${whole.replaceAll(".", "[.]")}$`);

/**
 * Invariants of every database at every moment, because a change and everything that belongs to it are one statement.
 */
const rules: Rules = {
  "every row has exactly one create event": (sql) => sql`
    select id from (
      select key_id as id from keys union all select identity_id from identities union all
      select override_id from rate_limit_overrides union all select api_id from apis union all
      select role_id from roles union all select permission_id from permissions union all
      select workspace_id from workspaces) as made
    where (select count(*) from audit_events where resource_id = id and type like '%.create') <> 1`,
  "every create event has its row or a delete event": (sql) => sql`
    select resource_id from audit_events as made
    where type like '%.create' and ${sql.unsafe(isLive)}
      and not exists (select from keys where key_id = resource_id)
      and not exists (select from workspaces where workspace_id = resource_id)
      and not exists (select from identities where identity_id = resource_id)
      and not exists (select from rate_limit_overrides where override_id = resource_id)
      and not exists (select from apis where api_id = resource_id)
      and not exists (select from roles where role_id = resource_id)
      and not exists (select from permissions where permission_id = resource_id)
      and not exists (
        select from audit_events where resource_id = made.resource_id and type like '%.delete')`,
  "the first event of a resource is its create event": (sql) => sql`
    select resource_id from (${sql.unsafe(chain)}) as events where type_before is null and type not like '%.create'`,
  "exactly the deleted rows have a delete event": (sql) => sql`
    select key_id from keys
    where ${sql.unsafe(isLive)} and (deleted_at is not null) <> exists (
      select from audit_events where resource_id = key_id and type = 'key.delete')
    union all
    select identity_id from identities
    where ${sql.unsafe(isLive)} and (deleted_at is not null) <> exists (
      select from audit_events where resource_id = identity_id and type = 'identity.delete')
    union all
    select api_id from apis
    where ${sql.unsafe(isLive)} and (deleted_at is not null) <> exists (
      select from audit_events where resource_id = api_id and type = 'api.delete')
    union all
    select role_id from roles
    where ${sql.unsafe(isLive)} and (deleted_at is not null) <> exists (
      select from audit_events where resource_id = role_id and type = 'role.delete')`,
  // A key loses its identity without its own event when the identity is deleted.
  "the last event of a row equals the row": (sql) => sql`
    select key_id, audit_snapshot(keys), after from keys join (${sql.unsafe(chain)}) as events on resource_id = key_id and is_last
    where after is not null
      and audit_snapshot(keys)::jsonb - 'identityId' is distinct from after::jsonb - 'identityId'
    union all
    select key_id, audit_snapshot(keys), after from keys join (${sql.unsafe(chain)}) as events on resource_id = key_id and is_last
    where after is not null and identity_id is distinct from after ->> 'identityId' and not (identity_id is null
      and exists (select from audit_events where resource_id = events.after ->> 'identityId' and type = 'identity.delete'))
    union all
    select identity_id, audit_snapshot(identities), after
    from identities join (${sql.unsafe(chain)}) as events on resource_id = identity_id and is_last
    where deleted_at is null and audit_snapshot(identities)::jsonb is distinct from after::jsonb
    union all
    select api_id, audit_snapshot(apis), after
    from apis join (${sql.unsafe(chain)}) as events on resource_id = api_id and is_last
    where deleted_at is null and audit_snapshot(apis)::jsonb is distinct from after::jsonb
    union all
    select role_id, audit_snapshot(roles), after
    from roles join (${sql.unsafe(chain)}) as events on resource_id = role_id and is_last
    where deleted_at is null and audit_snapshot(roles)::jsonb is distinct from after::jsonb
    union all
    select permission_id, audit_snapshot(permissions), after
    from permissions join (${sql.unsafe(chain)}) as events on resource_id = permission_id and is_last
    where audit_snapshot(permissions)::jsonb is distinct from after::jsonb
    union all
    select override_id, audit_snapshot(o), after
    from rate_limit_overrides o join (${sql.unsafe(chain)}) as events on resource_id = override_id and is_last
    where audit_snapshot(o)::jsonb is distinct from after::jsonb
    union all
    select w.workspace_id, audit_snapshot(w), after
    from workspaces w join (${sql.unsafe(chain)}) as events on resource_id = w.workspace_id and is_last
    where audit_snapshot(w)::jsonb is distinct from after::jsonb`,
  "an event's before equals the previous event's after": (sql) => sql`
    select event_id, before, previous_after from (${sql.unsafe(chain)}) as events
    where type_before is not null and before::jsonb - 'identityId' is distinct from previous_after::jsonb - 'identityId'`,
  "the events of a request form one complete change": (sql) => sql`
    select request_id, string_agg(type, ' ' order by position) as types from audit_events
    group by request_id having string_agg(type, ' ' order by position) !~ all(${wholes})`,
  "a workspace is created with its first key": (sql) => sql`
    select event_id from audit_events as made
    where type = 'workspace.create' and not exists (
      select from audit_events join keys on key_id = resource_id
      where type = 'key.create' and request_id = made.request_id and keys.workspace_id = made.workspace_id)`,
  "an identity created by a change of a key, or by an import, belongs to a key of it": (sql) => sql`
    select made.event_id from audit_events as made
    where made.type = 'identity.create'
      and exists (
        select from audit_events as owned
        where owned.request_id = made.request_id and owned.type in ('key.create', 'key.update'))
      and not exists (
        select from audit_events as owned
        where owned.request_id = made.request_id and owned.type in ('key.create', 'key.update')
          and owned.after ->> 'identityId' = made.resource_id)`,
  // The old key's expiry may have been set by an earlier reroll. Its successor gets the configured expiry.
  "a rerolled key expires, and its successor has the same settings": (sql) => sql`
    select replaced.event_id, replaced.before, replaced.after, made.after as successor
    from audit_events as replaced join audit_events as made using (request_id)
    where replaced.type = 'key.reroll' and made.type = 'key.create' and replaced.${sql.unsafe(isLive)} and (
      made.after::jsonb - '{start,expires,migrationId}'::text[]
        is distinct from replaced.before::jsonb - '{start,expires,migrationId}'::text[]
      or made.after ->> 'expires' is distinct from (
        select after ->> 'expires' from audit_events
        where resource_id = replaced.resource_id and position < replaced.position and (type = 'key.create'
          or type = 'key.update' and before ->> 'expires' is distinct from after ->> 'expires')
        order by position desc limit 1)
      or replaced.after::jsonb - 'expires' is distinct from replaced.before::jsonb - 'expires'
      or replaced.after ->> 'expires' is null)`,
  "the usage of a workspace equals its stored rows and bytes": (sql) => sql`
    with stored as (
      select workspace_id, count(*) as keys, 0 as identities, sum(json_bytes(audit_snapshot(keys))) as bytes
      from keys where deleted_at is null group by 1
      union all select workspace_id, 0, count(*), sum(json_bytes(audit_snapshot(identities)))
      from identities where deleted_at is null group by 1
      union all select workspace_id, 0, 0, sum(json_bytes(audit_snapshot(apis)))
      from apis where deleted_at is null group by 1
      union all select workspace_id, 0, 0, sum(json_bytes(audit_snapshot(roles)))
      from roles where deleted_at is null group by 1
      union all select workspace_id, 0, 0, sum(json_bytes(audit_snapshot(permissions))) from permissions group by 1
      union all select workspace_id, 0, 0, sum(json_bytes(audit_snapshot(o))) from rate_limit_overrides o group by 1
      union all select workspace_id, 0, 0, sum(audit_event_bytes(before, after)) from audit_events group by 1
      union all select workspace_id, 0, 0, sum(idempotency_record_bytes(encrypted_response, completion))
      from idempotency_records group by 1
      union all select workspace_id, -keys, -identities, -bytes from usage)
    select workspace_id, sum(keys)::int as keys, sum(identities)::int as identities, sum(bytes)::int as bytes
    from stored where ${sql.unsafe(isLive)} group by 1 having sum(keys) <> 0 or sum(identities) <> 0 or sum(bytes) <> 0`,
  "exactly the keys that need credits have some": (sql) => sql`
    select keys.key_id from keys left join key_credits using (key_id)
    where has_credits <> (key_credits.key_id is not null)`,
  "no row is stamped with a future transaction id": (sql) => sql`
    select changed_xid from (
      select changed_xid from keys union all select changed_xid from identities union all
      select changed_xid from apis union all select changed_xid from roles union all
      select changed_xid from override_versions union all select changed_xid from workspaces) as stamped
    where changed_xid >= pg_snapshot_xmax(pg_current_snapshot())`,
};

/**
 * Every violation of the invariants in a database, as text.
 *
 * @param more further invariants, which depend on what wrote to the database
 */
export async function findPartialChanges(sql: Sql, more: Rules = {}): Promise<string[]> {
  const found: string[] = [];
  for (const [rule, query] of Object.entries({ ...rules, ...more })) {
    for (const row of await query(sql)) found.push(`${rule}: ${JSON.stringify(row)}`);
  }
  return found;
}
