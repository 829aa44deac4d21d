-- The rest of a key's life: use, and an end that is remembered. A deleted key stays as a row, so that whoever follows
-- the changes by their epoch sees that it ended.
alter table keys
  add column last_used_at timestamptz(3),
  add column deleted_at timestamptz(3);

drop trigger keys_stamp on keys;
create trigger keys_stamp
  before update of workspace_id, hash, enabled, permissions, identity_id, expires_at, deleted_at on keys
  for each row execute function stamp_with_epoch();

-- Written in the transaction of the change that it tells of.
create table audit_events (
  event_id text collate "C" primary key,
  -- The order of events. Assigned while the changed row is locked, so that the events of a resource are in the order of
  -- its changes; ids are minted before that.
  position bigint not null generated always as identity,
  workspace_id text collate "C" not null references workspaces,
  type text not null,
  actor text not null,
  resource_id text collate "C" not null,
  request_id text not null,
  at timestamptz(3) not null,
  before json,
  after json
);
create index audit_events_by_workspace on audit_events (workspace_id, position);
create index audit_events_by_resource on audit_events (resource_id, position);
create unique index audit_events_in_order on audit_events (position);

-- What the audit tells of a row: its settings, never its secret.
create function told(k keys) returns json language sql stable as $$
  select json_build_object('start', k.start, 'name', k.name, 'enabled', k.enabled, 'permissions', k.permissions,
    'identityId', k.identity_id, 'meta', k.meta, 'expires', (extract(epoch from k.expires_at) * 1000)::bigint)
$$;
create function told(i identities) returns json language sql stable as $$
  select json_build_object('externalId', i.external_id, 'meta', i.meta)
$$;
create function told(w workspaces) returns json language sql stable as $$
  select json_build_object('name', w.name, 'enabled', w.disabled_at is null, 'disabledReason', w.disabled_reason,
    'disabledNote', w.disabled_note)
$$;
