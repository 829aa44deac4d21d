-- What can alter a decision about a key is stamped with the id of the transaction that did it, and no longer with an epoch
-- from one row, for which all changes of all workspaces had to wait. Which transactions a reading includes, its snapshot
-- tells: see docs/decisions/0029-transaction-ids-instead-of-epochs.md.
alter table workspaces drop column changed_epoch, add column changed_xid xid8 not null default '0';
alter table identities drop column changed_epoch, add column changed_xid xid8 not null default '0';
alter table keys drop column changed_epoch, add column changed_xid xid8 not null default '0';
create index workspaces_changed on workspaces (changed_xid);
create index identities_changed on identities (changed_xid);
create index keys_changed on keys (changed_xid);

-- In a trigger, so that no code path can forget it. New rows need no stamp: nobody can have cached an older version.
create function stamp_with_transaction() returns trigger language plpgsql as $$
begin
  new.changed_xid := pg_current_xact_id();
  return new;
end $$;
drop trigger workspaces_stamp on workspaces;
create trigger workspaces_stamp before update of disabled_at on workspaces
  for each row execute function stamp_with_transaction();
drop trigger identities_stamp on identities;
create trigger identities_stamp before update on identities for each row
  when (old.external_id <> new.external_id or old.meta::text <> new.meta::text or old.updated_at <> new.updated_at
    or old.deleted_at is distinct from new.deleted_at)
  execute function stamp_with_transaction();
drop trigger keys_stamp on keys;
create trigger keys_stamp
  before update of workspace_id, hash, name, enabled, scopes, permissions, identity_id, meta, expires_at, ended, deleted_at
  on keys for each row execute function stamp_with_transaction();
drop function stamp_with_epoch();

-- A row that is gone cannot be found among the changes. So its workspace is noted here, and counts as changed as a whole;
-- null stands for all workspaces. So a living key whose row is removed by hand ends within a lease, as any other.
create table removals (
  workspace_id text collate "C",
  changed_xid xid8 not null default pg_current_xact_id()
);
create index removals_changed on removals (changed_xid);

-- How long a process may answer from its cache, and what entries in Redis are sealed with. A row that was deleted before
-- it was removed has the stamp of its deletion; the last of those stamps stays here: whoever has not seen all transactions
-- up to it has missed a deletion that nobody can tell any more, and begins anew.
alter table epoch rename to lease;
alter table lease drop column value, drop column removed_at, add column forgotten_xid xid8 not null default '0';

drop trigger workspaces_removed on workspaces;
drop trigger keys_removed on keys;
drop trigger identities_removed on identities;
drop trigger keys_truncated on keys;
drop trigger identities_truncated on identities;
drop function forget_removed_rows();
drop function forget_what_was_removed();

create function note_removed_rows() returns trigger language plpgsql as $$
declare
  last xid8 := (select changed_xid from removed where deleted_at is not null order by changed_xid desc limit 1);
begin
  insert into removals (workspace_id) select distinct workspace_id from removed where deleted_at is null;
  update lease set forgotten_xid = last where forgotten_xid < last;
  return null;
end $$;
create trigger keys_removed after delete on keys referencing old table as removed
  for each statement execute function note_removed_rows();
create trigger identities_removed after delete on identities referencing old table as removed
  for each statement execute function note_removed_rows();

create function note_removed_workspaces() returns trigger language plpgsql as $$
begin
  insert into removals (workspace_id) select workspace_id from removed;
  return null;
end $$;
create trigger workspaces_removed after delete on workspaces referencing old table as removed
  for each statement execute function note_removed_workspaces();

create function note_truncation() returns trigger language plpgsql as $$
begin
  insert into removals (workspace_id) values (null);
  return null;
end $$;
create trigger keys_truncated after truncate on keys for each statement execute function note_truncation();
create trigger identities_truncated after truncate on identities for each statement execute function note_truncation();
create trigger workspaces_truncated after truncate on workspaces for each statement execute function note_truncation();

-- Names the history that transaction ids are counted in. It changes when a standby takes over, when a backup is restored
-- into another server, and when the seal is renewed: then equal ids need not mean equal changes any more.
create or replace function history() returns text language plpgsql stable as $$
declare
  seal text := (select lease.seal from lease);
begin
  return concat_ws('/', seal, (select system_identifier from pg_control_system()),
    left(pg_walfile_name(pg_current_wal_insert_lsn()), 8));
exception when others then -- where that is not for us to know, each start of the server counts as a takeover
  return concat_ws('/', seal, pg_postmaster_start_time());
end $$;
