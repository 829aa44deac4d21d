-- The epoch orders every change that can alter a decision about a key. Its one row is locked by each such change
-- until it commits, so the order of epochs is the order of commits; numbers from a sequence would not be.
create table epoch (
  only_row boolean primary key default true check (only_row),
  value bigint not null
);
insert into epoch (value) values (0);

-- Ids sort by the time of their making only when compared byte by byte: hence collate "C", whatever the database has.
create table workspaces (
  workspace_id text collate "C" primary key,
  name text not null,
  disabled_at timestamptz(3),
  disabled_reason text,
  disabled_note text,
  created_at timestamptz(3) not null,
  changed_epoch bigint not null default 0,
  constraint disabled_with_reason check ((disabled_at is null) = (disabled_reason is null)),
  constraint note_only_while_disabled check (disabled_at is not null or disabled_note is null)
);
create index workspaces_changed on workspaces (changed_epoch);

create table identities (
  identity_id text collate "C" primary key,
  workspace_id text collate "C" not null references workspaces,
  external_id text collate "C" not null,
  -- json, not jsonb: given back as it came, order of keys included.
  meta json not null,
  created_at timestamptz(3) not null,
  updated_at timestamptz(3) not null,
  constraint external_id_unique unique (workspace_id, external_id)
);
create index identities_by_workspace on identities (workspace_id, identity_id);

create table keys (
  key_id text collate "C" primary key,
  workspace_id text collate "C" not null references workspaces,
  hash bytea not null unique,
  start text not null,
  name text,
  enabled boolean not null,
  permissions text[] not null,
  identity_id text collate "C" references identities on delete set null,
  meta json,
  expires_at timestamptz(3),
  created_at timestamptz(3) not null,
  updated_at timestamptz(3) not null,
  changed_epoch bigint not null default 0
);
create index keys_by_workspace on keys (workspace_id, key_id);
create index keys_by_identity on keys (identity_id);
create index keys_changed on keys (changed_epoch);

-- A transaction that can alter a decision takes the next epoch once, at the first row it changes, and stamps each row
-- with it. In a trigger, so that no code path can forget it. New rows need no epoch: nobody can hold an older version.
create function stamp_with_epoch() returns trigger language plpgsql as $$
begin
  if current_setting('latchkey.epoch_taken_by', true) is distinct from pg_current_xact_id()::text then
    update epoch set value = value + 1;
    perform set_config('latchkey.epoch_taken_by', pg_current_xact_id()::text, true);
  end if;
  new.changed_epoch := (select value from epoch);
  return new;
end $$;

create trigger workspaces_stamp before update of disabled_at on workspaces
  for each row execute function stamp_with_epoch();
create trigger keys_stamp before update of workspace_id, hash, enabled, permissions, identity_id, expires_at on keys
  for each row execute function stamp_with_epoch();
