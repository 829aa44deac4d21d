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
  created_at timestamptz(3) not null,
  changed_xid xid8 not null default '0',
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
  created_at timestamptz(3) not null,
  updated_at timestamptz(3) not null,
  deleted_at timestamptz(3),
  changed_xid xid8 not null default '0'
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
  start text not null,
  name text,
  enabled boolean not null,
  -- What the key may do with this service.
  scopes text[] not null default '{}',
  -- What it may do in the user's own application; only a verification compares them.
  permissions text[] not null,
  identity_id text collate "C" references identities on delete set null,
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

-- What each workspace stores: keys and identities that were not deleted, and the bytes of these and of its audit events.
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

-- The responses to calls with an idempotency key, for retries with the same one. Written in the statement of the change
-- itself. The id is derived from the caller's credential and the idempotency key, and the response is encrypted with
-- the credential, which is stored nowhere: of a response with a secret, this table reveals nothing but its length.
create table idempotency_records (
  id bytea primary key,
  encrypted_response bytea not null,
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

-- A row as the audit shows it: its settings, never its secret.
create function audit_snapshot(k keys) returns json language sql stable as $$
  select json_build_object('start', k.start, 'name', k.name, 'enabled', k.enabled, 'scopes', k.scopes,
    'permissions', k.permissions, 'identityId', k.identity_id, 'meta', k.meta,
    'expires', (extract(epoch from k.expires_at) * 1000)::bigint)
$$;
create function audit_snapshot(i identities) returns json language sql stable as $$
  select json_build_object('externalId', i.external_id, 'meta', i.meta)
$$;
create function audit_snapshot(w workspaces) returns json language sql stable as $$
  select json_build_object('name', w.name, 'enabled', w.disabled_at is null, 'disabledReason', w.disabled_reason,
    'disabledNote', w.disabled_note)
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
-- rows.
create function count_usage() returns trigger language plpgsql as $$
begin
  insert into usage (workspace_id, shard, keys, identities, bytes)
  select workspace_id, pg_backend_pid() % 16,
    sum(case type when 'key.create' then 1 when 'key.delete' then -1 else 0 end),
    sum(case type when 'identity.create' then 1 when 'identity.delete' then -1 else 0 end),
    sum(audit_event_bytes(before, after)
      + case when type like 'workspace.%' then 0 else json_bytes(after) - json_bytes(before) end)
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

create function set_changed_xid() returns trigger language plpgsql as $$
begin
  new.changed_xid := pg_current_xact_id();
  return new;
end $$;

create function record_removed_rows() returns trigger language plpgsql as $$
declare
  last xid8 := (select changed_xid from removed where deleted_at is not null order by changed_xid desc limit 1);
begin
  insert into removals (workspace_id) select distinct workspace_id from removed where deleted_at is null;
  update cluster_state set forgotten_xid = last where forgotten_xid < last;
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
  perform from keys k join workspaces w using (workspace_id)
  where k.key_id = caller_id collate "C" and w.disabled_at is null
    and (k.xmin = pg_current_xact_id_if_assigned()::xid
      or (k.deleted_at is null and k.enabled and not k.ended and k.scopes = authorized_scopes
        and k.expires_at is not distinct from authorized_expires_at));
  if not found then
    raise exception 'the calling key is not as it was authorized' using errcode = 'LK001';
  end if;
  return true;
end $$;

-- The identity of a key, unless it was deleted. Locked, so that it stays so until the end of the transaction: a change of
-- the key is recorded in the audit either before the deletion, with the identity, or after it, without. Volatile, so that
-- it sees a deletion which was committed while the statement waited for its lock.
create function lock_live_identity(id text) returns text language plpgsql volatile strict as $$
begin
  return (select i.identity_id from identities i where i.identity_id = id and i.deleted_at is null for key share);
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
create trigger workspaces_set_changed_xid before update of disabled_at on workspaces
  for each row execute function set_changed_xid();
create trigger identities_set_changed_xid before update on identities for each row
  when (old.external_id <> new.external_id or old.meta::text <> new.meta::text or old.updated_at <> new.updated_at
    or old.deleted_at is distinct from new.deleted_at)
  execute function set_changed_xid();
create trigger keys_set_changed_xid
  before update of workspace_id, hash, name, enabled, scopes, permissions, identity_id, meta, expires_at, ended, deleted_at
  on keys for each row execute function set_changed_xid();

create trigger workspaces_removed after delete on workspaces referencing old table as removed
  for each statement execute function record_removed_workspaces();
create trigger identities_removed after delete on identities referencing old table as removed
  for each statement execute function record_removed_rows();
create trigger keys_removed after delete on keys referencing old table as removed
  for each statement execute function record_removed_rows();
create trigger workspaces_truncated after truncate on workspaces for each statement execute function record_truncation();
create trigger identities_truncated after truncate on identities for each statement execute function record_truncation();
create trigger keys_truncated after truncate on keys for each statement execute function record_truncation();

create trigger audit_events_added after insert on audit_events referencing new table as added
  for each statement execute function count_usage();
create trigger audit_events_removed after delete on audit_events referencing old table as removed
  for each statement execute function count_removed_events();

-- Indexes --------------------------------------------------------------------------------------------------------------

-- Changes since a snapshot.
create index workspaces_changed on workspaces (changed_xid);
create index identities_changed on identities (changed_xid);
create index keys_changed on keys (changed_xid);
create index removals_changed on removals (changed_xid);

-- Lists. A list with a filter walks through an index in its order, for a bounded number of entries. What the filter needs
-- is in the index, so that the rows themselves need not be read.
create index identities_by_workspace on identities (workspace_id, identity_id) include (external_id)
  where deleted_at is null;
create index keys_by_workspace on keys (workspace_id, key_id) include (enabled) where deleted_at is null;
-- The few that are disabled among many.
create index keys_disabled on keys (workspace_id, key_id) where deleted_at is null and not enabled;
-- With deleted keys, because the reference of keys to identities looks for them.
create index keys_by_identity on keys (identity_id, key_id) include (enabled, deleted_at) where identity_id is not null;
create index audit_events_by_workspace on audit_events (workspace_id, position) include (type, at);
create index audit_events_by_resource on audit_events (resource_id, position);
create unique index audit_events_in_order on audit_events (position);

-- An externalId can be used again once its identity is deleted.
create unique index identities_by_external_id on identities (workspace_id, external_id) where deleted_at is null;

-- Rows to remove, the oldest first.
create index identities_deleted on identities (deleted_at) where deleted_at is not null;
create index keys_deleted on keys (deleted_at) where deleted_at is not null;
create index audit_events_by_time on audit_events (at);
create index idempotency_records_by_expiry on idempotency_records (expires_at);

-- Initial rows ---------------------------------------------------------------------------------------------------------

insert into cluster_state default values;
