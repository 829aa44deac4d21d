-- The whole schema: tables, functions, triggers, indexes, initial rows.
--
-- Ids sort by the time of their creation only when compared byte by byte: hence collate "C" for them, whatever the
-- database has. Times have milliseconds, as the API has.
--
-- changed_xid is the id of the transaction that last changed a row in a way that can change a decision about a key.
-- Replicas find the changes since their last poll by it: see docs/decisions/0029-transaction-ids-and-snapshots.md.
-- It is '0' in a new row: no process can have cached an older version of it.

-- Tables ---------------------------------------------------------------------------------------------------------------

create table workspaces (
  workspace_id text collate "C" primary key,
  name text not null,
  disabled_at timestamptz(3),
  disabled_reason text,
  disabled_note text,
  -- Whether keys were ever imported. Their secrets have no checksum, so a malformed secret may exist. Never reset.
  has_imports boolean not null default false,
  created_at timestamptz(3) not null,
  -- A deleted workspace stays disabled. Its row stays, too, without a name: audit events refer to it. So its deletion
  -- changes one row, however many keys it has.
  deleted_at timestamptz(3),
  -- Of a deleted workspace: the texts of its audit events up to this position are erased, and when all its texts were.
  events_erased_to bigint not null default 0,
  erased_at timestamptz(3),
  changed_xid xid8 not null default '0',
  constraint deleted_while_disabled check (deleted_at is null or disabled_at is not null),
  constraint disabled_with_reason check ((disabled_at is null) = (disabled_reason is null)),
  constraint note_only_while_disabled check (disabled_at is not null or disabled_note is null)
);

-- A deleted identity stays as a row for a while, without its content. So its deletion changes one row, however many keys
-- it has: their identity_id stays, and a statement that reads a key joins only identities that were not deleted.
create table identities (
  identity_id text collate "C" primary key,
  workspace_id text collate "C" not null references workspaces,
  external_id text collate "C" not null,
  -- json, not jsonb: returned as it was given, with the order of its keys.
  meta json not null,
  -- Rate limits that all keys of the identity share: [{id, name, limit, duration, autoApply}].
  ratelimits json not null default '[]',
  created_at timestamptz(3) not null,
  updated_at timestamptz(3) not null,
  deleted_at timestamptz(3),
  changed_xid xid8 not null default '0'
);

-- A group of keys. A deleted API stays as a row without a name until its keys are deleted, too. So its deletion changes one row, however
-- many keys it has: a statement that reads a key joins only APIs that were not deleted. The keys are deleted in the
-- background, in the order of their ids.
create table apis (
  api_id text collate "C" primary key,
  workspace_id text collate "C" not null references workspaces,
  name text not null,
  created_at timestamptz(3) not null,
  deleted_at timestamptz(3),
  -- Of a deleted API: its keys up to this id are deleted, and when all were.
  keys_deleted_to text collate "C" not null default '',
  keys_deleted_at timestamptz(3),
  changed_xid xid8 not null default '0'
);

-- A named set of permissions. A deleted role stays as a row for a while, without its content, as a deleted identity does:
-- the keys that had it are not changed.
create table roles (
  role_id text collate "C" primary key,
  workspace_id text collate "C" not null references workspaces,
  name text collate "C" not null,
  description text,
  permissions text[] not null,
  created_at timestamptz(3) not null,
  deleted_at timestamptz(3),
  changed_xid xid8 not null default '0'
);

-- Describes permissions for people. No decision depends on it.
create table permissions (
  permission_id text collate "C" primary key,
  workspace_id text collate "C" not null references workspaces,
  slug text collate "C" not null,
  name text not null,
  description text,
  created_at timestamptz(3) not null
);

-- A deleted key stays as a row for a while, too, so that its deletion is found among the changes.
--
-- last_used_at is written again and again, and is in no index: with free space on its page (fillfactor), such a write
-- changes that page alone and none of the indexes.
create table keys (
  key_id text collate "C" primary key,
  workspace_id text collate "C" not null references workspaces,
  -- SHA-256 of the secret, which is not stored.
  hash bytea not null unique,
  -- Empty if the key was imported: then its secret was never known here.
  start text not null,
  name text,
  enabled boolean not null,
  -- What the key may do with this service.
  scopes text[] not null default '{}',
  -- What it may do in the user's own application; only a verification compares them.
  permissions text[] not null,
  -- Roles of the workspace, also some that were deleted since.
  role_ids text[] collate "C" not null default '{}',
  api_id text collate "C" references apis,
  -- The key's own rate limits: [{id, name, limit, duration, autoApply}].
  ratelimits json not null default '[]',
  -- Whether a verification spends credits. How many are left is in key_credits.
  has_credits boolean not null default false,
  identity_id text collate "C" references identities on delete set null,
  -- The label of the import that the key was created by.
  migration_id text,
  meta json,
  expires_at timestamptz(3),
  -- A reroll ends a key by its expires_at. The expiry that was configured before is kept here, 'infinity' for never, so
  -- that another reroll of the same key can pass it on. Null unless the key was rerolled since its expiry was set.
  configured_expires_at timestamptz(3),
  -- Its end was asked for and has come: it was rerolled without a grace period, or given an expiry that had passed. A
  -- state, as a deletion is, so that replicas learn of it as a change and no clock decides. An expiry that passes by
  -- itself is compared with the database's clock.
  ended boolean not null default false,
  created_at timestamptz(3) not null,
  updated_at timestamptz(3) not null,
  last_used_at timestamptz(3),
  deleted_at timestamptz(3),
  changed_xid xid8 not null default '0'
) with (fillfactor = 85);

-- The hashes of imported keys that were deleted, and whose rows were removed. An import that is repeated with an old list
-- does not create them again. Keys that the service created need no such row: their secrets are random, and it has no list.
create table removed_imports (
  workspace_id text collate "C" not null references workspaces,
  hash bytea not null,
  primary key (workspace_id, hash)
);

-- The credits of keys. A table of its own: spending changes no row that a cached key state depends on. No column that
-- spending changes is in an index, so with free space on the page a spend changes that page alone.
create table key_credits (
  key_id text collate "C" primary key references keys on delete cascade,
  remaining bigint not null,
  refill_interval text,
  refill_amount bigint,
  refill_day smallint,
  -- Refills up to this time are contained in `remaining`.
  refilled_at timestamptz(3) not null,
  constraint never_below_zero check (remaining >= 0),
  constraint whole_refill check ((refill_interval is null) = (refill_amount is null)
    and (refill_interval is not distinct from 'monthly') = (refill_day is not null)),
  constraint known_interval check (refill_interval in ('daily', 'monthly'))
) with (fillfactor = 50);

-- Limits of the stand-alone limiter that replace those of requests.
create table rate_limit_overrides (
  override_id text collate "C" primary key,
  workspace_id text collate "C" not null references workspaces,
  namespace text collate "C" not null,
  -- An identifier, or a pattern with `*`.
  identifier text collate "C" not null,
  "limit" integer not null,
  -- The length of a window in milliseconds.
  duration bigint not null,
  created_at timestamptz(3) not null
);

-- The last change of the overrides of each workspace. A row of its own for all of them: replicas also cache that a namespace
-- has no overrides, and a list without rows has no row to stamp.
create table override_versions (
  workspace_id text collate "C" primary key references workspaces,
  changed_xid xid8 not null default pg_current_xact_id()
);

-- Written in the statement of the change that an event describes.
create table audit_events (
  event_id text collate "C" primary key,
  -- The order of events. Assigned while the changed row is locked, so that the events of a resource are in the order of
  -- its changes; event ids are generated before that.
  position bigint not null generated always as identity,
  workspace_id text collate "C" not null references workspaces,
  type text not null,
  actor text not null,
  resource_id text collate "C" not null,
  request_id text not null,
  at timestamptz(3) not null,
  -- The resource as audit_snapshot() returned it; null before its creation and after its deletion.
  before json,
  after json
);

-- What each workspace stores: keys and identities that were not deleted, and the bytes of these, of its audit events and of
-- its idempotency records.
-- In several rows for each workspace, which are added up: concurrent changes of one workspace do not wait for each
-- other's row.
create table usage (
  workspace_id text collate "C" not null,
  shard smallint not null,
  keys bigint not null,
  identities bigint not null,
  bytes bigint not null,
  primary key (workspace_id, shard)
) with (fillfactor = 50);

-- How often keys were verified in each hour: in a row for each key, and in a row for each identity, which counts the
-- verifications of the keys that it had then. So the usage of an identity is read from as many rows as that of a key,
-- however many keys it has. The rows of a deleted key or identity stay until they are old.
--
-- Rows of the present hour are written again and again. With free space on its page, such a write changes none of the
-- indexes.
create table verification_counts (
  -- A key or an identity.
  resource_id text collate "C" not null,
  -- '' counts all verifications. Other rows count those with this tag.
  tag text collate "C" not null,
  -- Its beginning.
  hour timestamptz(0) not null,
  workspace_id text collate "C" not null,
  valid bigint not null,
  rate_limited bigint not null,
  usage_exceeded bigint not null,
  insufficient_permissions bigint not null,
  disabled bigint not null,
  expired bigint not null,
  primary key (resource_id, tag, hour)
) with (fillfactor = 70);

-- The last batch of counts that each process has stored. A process that does not know the outcome of a batch sends it
-- again, and finds here whether it was stored.
create table verification_counters (
  counter_id uuid primary key,
  last_batch bigint not null,
  stored_at timestamptz(3) not null
) with (fillfactor = 50);

-- How many counts of new tags each workspace has had in the latest hour with one, to limit their number. The counts
-- themselves would take too long to count.
create table verification_tags (
  workspace_id text collate "C" primary key,
  hour timestamptz(0) not null,
  -- Those beyond the limit, too, which are not stored.
  new_tags bigint not null
) with (fillfactor = 50);

-- The responses to calls with an idempotency key, for retries with the same one. Written in the statement of the change
-- itself. The id is derived from the caller's credential and the idempotency key, and the response is encrypted with
-- the credential, which is stored nowhere: of a response with a secret, this table reveals nothing but its length and its
-- workspace.
create table idempotency_records (
  id bytea primary key,
  -- The workspace that it counts for. Null: it is the operator's, and has no quota.
  workspace_id text collate "C",
  encrypted_response bytea not null,
  -- What only the statement of the change knows of the response, merged into it. Never a secret.
  completion json,
  expires_at timestamptz(3) not null
);

-- A row that was removed cannot be found among the changes. So its workspace is recorded here, and counts as changed as a
-- whole; null stands for all workspaces. So a live key whose row is removed by hand is refused within a lease, as any
-- other. Of rows that were deleted before their removal, see cluster_state.forgotten_xid.
create table removals (
  workspace_id text collate "C",
  changed_xid xid8 not null default pg_current_xact_id()
);

create function new_cache_secret() returns text language sql volatile as $$
  select encode(sha256((gen_random_uuid()::text || gen_random_uuid()::text)::bytea), 'hex')
$$;

-- One row: what all replicas must agree on.
create table cluster_state (
  only_row boolean primary key default true check (only_row),
  -- How long a process may use its cached key state after it asked for changes. Change both times by `latchkey lease`
  -- alone: see docs/decisions/0030-online-lease-time-change.md.
  lease_ms integer not null default 250,
  -- How long a change waits before it is acknowledged: never less than the lease of any process. Longer than lease_ms
  -- while that is being lowered.
  wait_ms integer not null default 250,
  -- Cache entries in Redis are signed with it: what others write there is not accepted.
  cache_secret text not null default new_cache_secret(),
  -- A row that was deleted before it was removed has the changed_xid of its deletion. The last of those is kept here: a
  -- process that has not seen all transactions up to it may have missed a deletion that can no longer be found, and
  -- drops its cache.
  forgotten_xid xid8 not null default '0',
  constraint lease_within_reason check (lease_ms between 20 and 5000),
  constraint changes_wait_for_leases check (wait_ms between lease_ms and 5000)
);

-- Functions ------------------------------------------------------------------------------------------------------------

-- A row as the audit shows it: its settings, never its secret. The credits of a key have events of their own, because
-- they are spent without an event.
create function audit_snapshot(k keys) returns json language sql stable as $$
  select json_build_object('start', k.start, 'name', k.name, 'enabled', k.enabled, 'scopes', k.scopes,
    'permissions', k.permissions, 'roles', k.role_ids, 'apiId', k.api_id, 'identityId', k.identity_id, 'meta', k.meta,
    'expires', (extract(epoch from k.expires_at) * 1000)::bigint, 'ratelimits', k.ratelimits, 'migrationId', k.migration_id)
$$;
create function audit_snapshot(i identities) returns json language sql stable as $$
  select json_build_object('externalId', i.external_id, 'meta', i.meta, 'ratelimits', i.ratelimits)
$$;
create function audit_snapshot(a apis) returns json language sql stable as $$
  select json_build_object('name', a.name)
$$;
create function audit_snapshot(r roles) returns json language sql stable as $$
  select json_build_object('name', r.name, 'description', r.description, 'permissions', r.permissions)
$$;
create function audit_snapshot(p permissions) returns json language sql stable as $$
  select json_build_object('slug', p.slug, 'name', p.name, 'description', p.description)
$$;
create function audit_snapshot(o rate_limit_overrides) returns json language sql stable as $$
  select json_build_object('namespace', o.namespace, 'identifier', o.identifier, 'limit', o."limit", 'duration', o.duration)
$$;
create function audit_snapshot(w workspaces) returns json language sql stable as $$
  select json_build_object('name', w.name, 'enabled', w.disabled_at is null, 'disabledReason', w.disabled_reason,
    'disabledNote', w.disabled_note)
$$;

-- An audit snapshot of a deleted workspace: what this service itself assigns or counts stays. Everything else may be
-- personal data: names, meta, externalIds, identifiers, permissions. A list of what stays, so that a field which is added
-- to a snapshot is erased unless somebody decides otherwise.
create function without_texts(snapshot json) returns json language sql immutable parallel safe as $$
  select coalesce(json_object_agg(key, value), '{}') from json_each(snapshot)
  where snapshot is not null and key in ('enabled', 'disabledReason', 'scopes', 'roles', 'apiId', 'identityId', 'expires',
    'limit', 'duration', 'remaining', 'refill')
$$;

-- How many bytes a key or an identity counts for: its audit snapshot, and a constant for the rest of the row and its
-- index entries; 0 for null. Not the size on disk, which depends on compression: what is subtracted in the end must be
-- what was added in the beginning. So the identity of a key, which it loses without an event, counts for nothing.
create function json_bytes(snapshot json) returns bigint language sql immutable parallel safe as $$
  select coalesce(300 + octet_length(snapshot::text) - coalesce(octet_length((snapshot -> 'identityId')::text), 0), 0)::bigint
$$;
create function audit_event_bytes(before json, after json) returns bigint language sql immutable parallel safe as $$
  select (400 + coalesce(octet_length(before::text), 0) + coalesce(octet_length(after::text), 0))::bigint
$$;

-- Every change writes its event in its own statement, so the events contain all that is to be counted: one trigger,
-- instead of one on each table. It counts by statement, since counting row by row would write the usage as often. It runs
-- after everything else in its statement, and connections that work at the same time rarely have the same one of the 16
-- rows. Workspaces count for no bytes, and neither do the credits of a key.
create function count_usage() returns trigger language plpgsql as $$
begin
  insert into usage (workspace_id, shard, keys, identities, bytes)
  select workspace_id, pg_backend_pid() % 16,
    sum(case type when 'key.create' then 1 when 'key.delete' then -1 else 0 end),
    sum(case type when 'identity.create' then 1 when 'identity.delete' then -1 else 0 end),
    sum(audit_event_bytes(before, after)
      + case when type like 'workspace.%' or type = 'key.updateCredits' then 0
        else json_bytes(after) - json_bytes(before) end)
  from added group by workspace_id order by workspace_id
  on conflict (workspace_id, shard) do update set keys = usage.keys + excluded.keys,
    identities = usage.identities + excluded.identities, bytes = usage.bytes + excluded.bytes;
  return null;
end $$;

-- Events are removed when they are old; the resources that they describe stay.
create function count_removed_events() returns trigger language plpgsql as $$
begin
  insert into usage (workspace_id, shard, keys, identities, bytes)
  select workspace_id, pg_backend_pid() % 16, 0, 0, -sum(audit_event_bytes(before, after))
  from removed group by workspace_id order by workspace_id
  on conflict (workspace_id, shard) do update set bytes = usage.bytes + excluded.bytes;
  return null;
end $$;

create function idempotency_record_bytes(encrypted_response bytea, completion json) returns bigint
language sql immutable parallel safe as $$
  select (200 + octet_length(encrypted_response) + coalesce(octet_length(completion::text), 0))::bigint
$$;

-- A request that changes nothing has no event, but its response is stored for its idempotency key.
create function count_idempotency_records() returns trigger language plpgsql as $$
begin
  insert into usage (workspace_id, shard, keys, identities, bytes)
  select workspace_id, pg_backend_pid() % 16, 0, 0,
    case tg_op when 'INSERT' then 1 else -1 end * sum(idempotency_record_bytes(encrypted_response, completion))
  from records where workspace_id is not null group by workspace_id order by workspace_id
  on conflict (workspace_id, shard) do update set bytes = usage.bytes + excluded.bytes;
  return null;
end $$;

create function set_changed_xid() returns trigger language plpgsql as $$
begin
  new.changed_xid := pg_current_xact_id();
  return new;
end $$;

create function stamp_overrides() returns trigger language plpgsql as $$
begin
  insert into override_versions (workspace_id)
  select distinct id from unnest(array[old.workspace_id, new.workspace_id]) as id where id is not null
  on conflict (workspace_id) do update set changed_xid = pg_current_xact_id();
  return null;
end $$;

create function record_removed_rows() returns trigger language plpgsql as $$
declare
  last xid8 := (select changed_xid from removed where deleted_at is not null order by changed_xid desc limit 1);
begin
  insert into removals (workspace_id) select distinct workspace_id from removed where deleted_at is null;
  update cluster_state set forgotten_xid = last where forgotten_xid < last;
  return null;
end $$;

create function record_removed_imports() returns trigger language plpgsql as $$
begin
  insert into removed_imports (workspace_id, hash)
  select workspace_id, hash from removed where deleted_at is not null and migration_id is not null
  on conflict do nothing;
  return null;
end $$;

create function record_removed_workspaces() returns trigger language plpgsql as $$
begin
  insert into removals (workspace_id) select workspace_id from removed;
  return null;
end $$;

create function record_truncation() returns trigger language plpgsql as $$
begin
  insert into removals (workspace_id) values (null);
  return null;
end $$;

-- Every statement that changes something for a key calls this in its last part. It fails unless the calling key is as it
-- was when the service authorized the call, and its workspace is enabled: then nothing of the statement is stored, and the
-- service authorizes the call anew. Volatile, so that it sees what is committed by now, and not what was when the
-- statement began: it may have waited for a lock since. Where the statement itself has changed the calling key, it has
-- locked that row in the version that it was authorized by (changed_xid), and finds its own change here.
create function require_caller_unchanged(caller_id text, authorized_scopes text[], authorized_expires_at timestamptz)
returns boolean language plpgsql volatile as $$
begin
  perform from keys k join workspaces w using (workspace_id) left join apis a using (api_id)
  where k.key_id = caller_id collate "C" and w.disabled_at is null and a.deleted_at is null
    and (k.xmin = pg_current_xact_id_if_assigned()::xid
      or (k.deleted_at is null and k.enabled and not k.ended and k.scopes = authorized_scopes
        and k.expires_at is not distinct from authorized_expires_at));
  if not found then
    raise exception 'the calling key is not as it was authorized' using errcode = 'LK001';
  end if;
  return true;
end $$;

-- The API of a key, unless it was deleted. Locked and volatile, as lock_live_identity() is.
create function lock_live_api(id text) returns text language plpgsql volatile strict as $$
begin
  return (select a.api_id from apis a where a.api_id = id and a.deleted_at is null for key share);
end $$;

-- The same as covers() in the service: whether granted scopes cover a required one.
create function covers(granted text[], required text) returns boolean language sql immutable parallel safe as $$
  select required = any (granted) or '*' = any (granted) or exists (
    select from unnest(granted) as scope where right(scope, 2) = '.*' and starts_with(required, left(scope, -1)))
$$;

-- Whether keys of an API have scopes that are not among the granted ones. Reads 101 keys at most: if more than 100 have
-- scopes, only '*' is enough. Volatile, so that it sees keys that were committed while the statement waited for the lock of
-- the API.
create function has_keys_beyond(api text, granted text[]) returns boolean language plpgsql volatile as $$
begin
  return '*' <> all (granted) and exists (
    select from (
      select k.scopes, row_number() over () as number from keys k
      where k.api_id = api and k.scopes <> '{}' and k.deleted_at is null limit 101) as with_scopes
    where number > 100 or exists (select from unnest(scopes) as scope where not covers(granted, scope)));
end $$;

-- Permissions with their workspace, for an index: the same slug of another workspace is another entry.
create function permissions_of_workspace(workspace_id text, permissions text[]) returns text[]
language sql immutable parallel safe as $$
  select array(select workspace_id || ' ' || permission from unnest(permissions) as permission)
$$;

-- The identity of a key, unless it was deleted. Locked, so that it stays so until the end of the transaction: a change of
-- the key is recorded in the audit either before the deletion, with the identity, or after it, without. Volatile, so that
-- it sees a deletion which was committed while the statement waited for its lock.
create function lock_live_identity(id text) returns text language plpgsql volatile strict as $$
begin
  return (select i.identity_id from identities i where i.identity_id = id and i.deleted_at is null for key share);
end $$;

-- The last refill up to a moment: at 00:00:00.000 UTC of every day, or of this day of every month; in a shorter month, of its
-- last day. The time zone of the session has no influence.
create function last_refill(refill_interval text, refill_day integer, moment timestamptz) returns timestamptz
language plpgsql immutable parallel safe as $$
declare
  utc timestamp := moment at time zone 'UTC';
  month timestamp := date_trunc('month', utc);
  refill timestamp;
begin
  if refill_interval = 'daily' then
    return date_trunc('day', utc) at time zone 'UTC';
  end if;
  loop
    refill := month + interval '1 day' * (least(refill_day, extract(day from month + interval '1 month -1 day')::integer) - 1);
    exit when refill <= utc;
    month := month - interval '1 month';
  end loop;
  return refill at time zone 'UTC';
end $$;

-- Credits at a moment, with the refill that was due by then. However many were due since the last one, they count once.
create function credits_at(credits key_credits, moment timestamptz) returns key_credits
language plpgsql immutable parallel safe as $$
declare
  refill timestamptz;
begin
  if credits.refill_interval is null then
    return credits;
  end if;
  refill := last_refill(credits.refill_interval, credits.refill_day, moment);
  if refill > credits.refilled_at then
    credits.remaining := greatest(credits.remaining, credits.refill_amount);
    credits.refilled_at := refill;
  end if;
  return credits;
end $$;

-- Credits as the API and the audit show them.
create function credits_json(credits key_credits) returns json language sql stable as $$
  select json_strip_nulls(json_build_object('remaining', credits.remaining, 'refill',
    case when credits.refill_interval is not null then json_build_object('interval', credits.refill_interval,
      'amount', credits.refill_amount, 'refillDay', credits.refill_day) end))
$$;

-- Spends credits of several keys, each of which is named once. The costs of a key are a text, separated by spaces; they are
-- spent in this order, each as a whole or not at all. One row for each cost: its place among the costs of its key, whether
-- it was spent, and how many credits are left then. One row without a place for each key that has no credits: `spent` is
-- true if it needs none any more, and null if its row is locked or missing.
--
-- Rows are locked in the order of their ids, so concurrent calls cannot wait for each other in a circle. The call fails if
-- it waits for one of them longer than lock_wait_ms. With 0 it waits for none, and leaves out those that are locked.
--
-- It fails, and spends nothing, if it begins after begin_before: its spends were decided on under a lease that ended then.
--
-- The plans are made before the table has its size, and are used for long: none may read the whole table or index.
create function spend_credits(key_ids text[], key_costs text[], lock_wait_ms integer, begin_before timestamptz)
returns table (key_id text, place integer, spent boolean, remaining bigint)
language plpgsql volatile set enable_seqscan = off set enable_mergejoin = off as $$
#variable_conflict use_column
declare
  free_ids text[] := key_ids;
  free_costs text[] := key_costs;
  locked record;
  refilled key_credits;
  refilled_at timestamptz;
  cost bigint;
  done_ids text[] := '{}';
  changed_ids text[] := '{}';
  changed_remaining bigint[] := '{}';
  changed_refilled_at timestamptz[] := '{}';
begin
  if clock_timestamp() > begin_before then
    raise exception 'the statement began after the lease that its spends depend on' using errcode = 'LK002';
  end if;
  if lock_wait_ms > 0 then
    perform set_config('lock_timeout', lock_wait_ms::text, true);
  else
    select array_agg(free.key_id), array_agg(free.costs) into free_ids, free_costs
    from (
      select c.key_id, spends.costs
      from unnest(key_ids, key_costs) as spends (key_id, costs) join key_credits c using (key_id)
      for no key update of c skip locked) as free;
  end if;
  for locked in
    select c as credits, c.key_id, c.remaining, c.refilled_at, c.refill_interval is not null as has_refill, spends.costs
    from unnest(free_ids, free_costs) as spends (key_id, costs) join key_credits c using (key_id)
    order by c.key_id for no key update of c
  loop
    key_id := locked.key_id;
    remaining := locked.remaining;
    refilled_at := locked.refilled_at;
    if locked.has_refill then
      refilled := credits_at(locked.credits, clock_timestamp());
      remaining := refilled.remaining;
      refilled_at := refilled.refilled_at;
    end if;
    place := 0;
    foreach cost in array string_to_array(locked.costs, ' ')::bigint[] loop
      place := place + 1;
      spent := remaining >= cost;
      if spent then
        remaining := remaining - cost;
      end if;
      return next;
    end loop;
    if remaining <> locked.remaining or refilled_at <> locked.refilled_at then
      changed_ids := changed_ids || key_id;
      changed_remaining := changed_remaining || remaining;
      changed_refilled_at := changed_refilled_at || refilled_at;
    end if;
    done_ids := done_ids || key_id;
  end loop;
  update key_credits c set remaining = changed.remaining, refilled_at = changed.refilled_at
  from unnest(changed_ids, changed_remaining, changed_refilled_at) as changed (key_id, remaining, refilled_at)
  where c.key_id = changed.key_id;
  if cardinality(done_ids) < cardinality(key_ids) then
    return query
      select missing, null::integer, (select true from keys k where k.key_id = missing and not k.has_credits), null::bigint
      from unnest(key_ids) as missing where missing <> all (done_ids);
  end if;
end $$;

-- A text with letter case aside, for all letters, whatever the locale of the database: by a collation that PostgreSQL
-- contains from version 17 on, else by that of ICU, with which nearly all others are built. Where there is neither, or
-- the encoding of the database is not for them, its own locale decides: then letters beyond ASCII may keep their case, but
-- what was stored is always found by itself. In capitals at last, since small letters can depend on their neighbours.
do $$
declare
  candidate text;
begin
  foreach candidate in array array['pg_c_utf8', 'und-x-icu', 'default'] loop
    begin
      execute format('create or replace function case_folded(text) returns text language sql immutable parallel safe
        as ''select upper(lower($1 collate %I))''', candidate);
      perform case_folded('a');
      return;
    exception when undefined_object or feature_not_supported then
      if candidate = 'default' then raise; end if;
    end;
  end loop;
end $$;

-- Makes all cache entries in Redis worthless, e.g. after the restore of a backup.
create function rotate_cache_secret() returns void language sql volatile as $$
  update cluster_state set cache_secret = new_cache_secret()
$$;

-- Names the timeline that transaction ids are counted in. It changes when a standby takes over, when a backup is restored
-- into another server, and when the cache secret is rotated: then equal ids need not mean equal changes any more.
create function timeline() returns text language plpgsql stable as $$
declare
  secret text := (select cache_secret from cluster_state);
begin
  return concat_ws('/', secret, (select system_identifier from pg_control_system()),
    left(pg_walfile_name(pg_current_wal_insert_lsn()), 8));
exception when others then -- where we may not read that, each start of the server counts as a failover
  return concat_ws('/', secret, pg_postmaster_start_time());
end $$;

-- Triggers -------------------------------------------------------------------------------------------------------------

-- In triggers, so that no code path can forget it. They list all that a verification depends on or returns.
create trigger workspaces_set_changed_xid before update of disabled_at, has_imports, deleted_at on workspaces
  for each row execute function set_changed_xid();
create trigger identities_set_changed_xid before update on identities for each row
  when (old.external_id <> new.external_id or old.meta::text <> new.meta::text or old.updated_at <> new.updated_at
    or old.ratelimits::text <> new.ratelimits::text
    or old.deleted_at is distinct from new.deleted_at)
  execute function set_changed_xid();
create trigger keys_set_changed_xid
  before update of workspace_id, hash, name, enabled, scopes, permissions, role_ids, api_id, ratelimits, has_credits,
    identity_id, meta, expires_at, ended, deleted_at
  on keys for each row execute function set_changed_xid();
create trigger apis_set_changed_xid before update of deleted_at on apis for each row execute function set_changed_xid();
create trigger roles_set_changed_xid before update of name, permissions, deleted_at on roles
  for each row execute function set_changed_xid();

create trigger overrides_changed after insert or update or delete on rate_limit_overrides
  for each row execute function stamp_overrides();

create trigger workspaces_removed after delete on workspaces referencing old table as removed
  for each statement execute function record_removed_workspaces();
create trigger identities_removed after delete on identities referencing old table as removed
  for each statement execute function record_removed_rows();
create trigger keys_removed after delete on keys referencing old table as removed
  for each statement execute function record_removed_rows();
create trigger imports_removed after delete on keys referencing old table as removed
  for each statement execute function record_removed_imports();
create trigger apis_removed after delete on apis referencing old table as removed
  for each statement execute function record_removed_rows();
create trigger roles_removed after delete on roles referencing old table as removed
  for each statement execute function record_removed_rows();
create trigger override_versions_removed after delete on override_versions referencing old table as removed
  for each statement execute function record_removed_workspaces();
create trigger workspaces_truncated after truncate on workspaces for each statement execute function record_truncation();
create trigger identities_truncated after truncate on identities for each statement execute function record_truncation();
create trigger keys_truncated after truncate on keys for each statement execute function record_truncation();
create trigger apis_truncated after truncate on apis for each statement execute function record_truncation();
create trigger roles_truncated after truncate on roles for each statement execute function record_truncation();
create trigger overrides_truncated after truncate on rate_limit_overrides
  for each statement execute function record_truncation();
create trigger override_versions_truncated after truncate on override_versions
  for each statement execute function record_truncation();

create trigger audit_events_added after insert on audit_events referencing new table as added
  for each statement execute function count_usage();
create trigger audit_events_removed after delete on audit_events referencing old table as removed
  for each statement execute function count_removed_events();

create trigger idempotency_records_added after insert on idempotency_records referencing new table as records
  for each statement execute function count_idempotency_records();
create trigger idempotency_records_removed after delete on idempotency_records referencing old table as records
  for each statement execute function count_idempotency_records();

-- Indexes --------------------------------------------------------------------------------------------------------------

-- Changes since a snapshot.
create index workspaces_changed on workspaces (changed_xid);
create index identities_changed on identities (changed_xid);
create index keys_changed on keys (changed_xid);
create index apis_changed on apis (changed_xid);
create index roles_changed on roles (changed_xid);
create index override_versions_changed on override_versions (changed_xid);
create index removals_changed on removals (changed_xid);

-- Lists. A list with a filter walks through an index in its order, for a bounded number of entries. What the filter needs
-- is in the index, so that the rows themselves need not be read.
create index identities_by_workspace on identities (workspace_id, identity_id) include (external_id)
  where deleted_at is null;
create index keys_by_workspace on keys (workspace_id, key_id) include (enabled, api_id) where deleted_at is null;
-- The few that are disabled among many.
create index keys_disabled on keys (workspace_id, key_id) where deleted_at is null and not enabled;
-- With deleted keys, because the reference of keys to identities looks for them.
create index keys_by_identity on keys (identity_id, key_id) include (enabled, api_id, deleted_at)
  where identity_id is not null;
create index keys_by_api on keys (api_id, key_id) include (enabled, deleted_at) where api_id is not null;
create index apis_by_workspace on apis (workspace_id, api_id) where deleted_at is null;
create index roles_by_workspace on roles (workspace_id, role_id) include (name) where deleted_at is null;
create index permissions_by_workspace on permissions (workspace_id, permission_id) include (slug);
create index overrides_by_namespace on rate_limit_overrides (workspace_id, namespace, override_id);
create index audit_events_by_workspace on audit_events (workspace_id, position) include (type, at);
create index audit_events_by_resource on audit_events (resource_id, position);
create unique index audit_events_in_order on audit_events (position);

-- The tags of a key or an identity in an hour, whose number is limited. With a condition that PostgreSQL cannot derive from
-- the equality of a tag: without statistics it would read the hours of one tag by this index, and so the other tags.
create index verification_counts_tags on verification_counts (resource_id, hour) where length(tag) > 0;

create index workspaces_in_order on workspaces (workspace_id) where deleted_at is null;

-- An externalId can be used again once its identity is deleted.
create unique index identities_by_external_id on identities (workspace_id, external_id) where deleted_at is null;

-- The few keys of an API that may call this service.
create index keys_with_scopes on keys (api_id) where api_id is not null and scopes <> '{}' and deleted_at is null;

-- Who has a permission. Without a list of pending entries, which each search would read as a whole.
create index keys_by_permission on keys using gin (permissions_of_workspace(workspace_id, permissions))
  with (fastupdate = off) where permissions <> '{}' and deleted_at is null;
create index roles_by_permission on roles using gin (permissions_of_workspace(workspace_id, permissions))
  with (fastupdate = off) where permissions <> '{}' and deleted_at is null;

create unique index roles_by_name on roles (workspace_id, name) where deleted_at is null;
create unique index permissions_by_slug on permissions (workspace_id, slug);
create unique index overrides_by_identifier on rate_limit_overrides (workspace_id, namespace, identifier);

-- Deleted workspaces with texts to erase, the oldest first, and deleted keys with texts.
create index workspaces_to_erase on workspaces (deleted_at) where deleted_at is not null and erased_at is null;
create index keys_to_erase on keys (workspace_id, key_id)
  where deleted_at is not null and (start <> '' or migration_id is not null);

-- Rows to remove, the oldest first.
create index apis_with_keys on apis (deleted_at) where deleted_at is not null and keys_deleted_at is null;
create index apis_deleted on apis (keys_deleted_at) where keys_deleted_at is not null;
create index roles_deleted on roles (deleted_at) where deleted_at is not null;
create index identities_deleted on identities (deleted_at) where deleted_at is not null;
create index keys_deleted on keys (deleted_at) where deleted_at is not null;
create index audit_events_by_time on audit_events (at);
create index verification_counts_by_hour on verification_counts (hour);
create index idempotency_records_by_expiry on idempotency_records (expires_at);

-- Initial rows ---------------------------------------------------------------------------------------------------------

insert into cluster_state default values;
