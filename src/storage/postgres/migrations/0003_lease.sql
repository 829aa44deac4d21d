-- A process may answer from what it holds for this long after it has asked for changes. It stands here so that all
-- replicas agree: whoever changes something waits it out. Change it only while no replica runs.
alter table epoch
  add column lease_ms integer not null default 250,
  add constraint lease_within_reason check (lease_ms between 20 and 5000);

-- A secret, with which entries in Redis are sealed: what others write there is not taken for ours.
create function new_seal() returns text language sql volatile as $$
  select encode(sha256((gen_random_uuid()::text || gen_random_uuid()::text)::bytea), 'hex')
$$;
alter table epoch add column seal text not null default new_seal();

-- Names the history that epochs are counted in. It changes when a standby takes over, when a backup is restored into
-- another server, and when the seal is renewed: then equal epochs need not mean equal rows any more.
create function history() returns text language plpgsql stable as $$
declare
  seal text := (select epoch.seal from epoch);
begin
  return concat_ws('/', seal, (select system_identifier from pg_control_system()),
    left(pg_walfile_name(pg_current_wal_insert_lsn()), 8));
exception when others then -- where that is not for us to know, each start of the server counts as a takeover
  return concat_ws('/', seal, pg_postmaster_start_time());
end $$;

-- All that is told of a verified key is followed by its changes: the name, the meta and the identity, too.
drop trigger keys_stamp on keys;
create trigger keys_stamp
  before update of workspace_id, hash, name, enabled, permissions, identity_id, meta, expires_at, deleted_at on keys
  for each row execute function stamp_with_epoch();

alter table identities add column changed_epoch bigint not null default 0;
create index identities_changed on identities (changed_epoch);
create trigger identities_stamp before update on identities for each row
  when (old.external_id <> new.external_id or old.meta::text <> new.meta::text or old.updated_at <> new.updated_at)
  execute function stamp_with_epoch();

-- A row that is gone cannot be found among the changes. So its going takes an epoch too, and whatever was read before
-- that epoch is worth nothing: a living key whose row is removed by hand ends within a lease, as any other.
alter table epoch add column removed_at bigint not null default 0;
create function forget_what_was_removed() returns trigger language plpgsql as $$
begin
  update epoch set value = value + 1, removed_at = value + 1;
  return null;
end $$;
create trigger keys_removed after delete or truncate on keys
  for each statement execute function forget_what_was_removed();
create trigger workspaces_removed after delete or truncate on workspaces
  for each statement execute function forget_what_was_removed();
