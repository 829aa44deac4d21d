-- A deleted identity stays as a row, as a deleted key does, without its content. So its deletion changes one row, however
-- many keys it has: their identity_id stays, and whoever reads a key joins identities that were not deleted. The row's
-- stamp is what tells the replicas, since a cached key depends on the row of its identity, too.
alter table identities add column deleted_at timestamptz(3);

-- An externalId can be used again once its identity is deleted. Lists and searches read external_id from the index.
alter table identities drop constraint external_id_unique;
create unique index identities_by_external_id on identities (workspace_id, external_id) where deleted_at is null;
drop index identities_by_workspace;
create index identities_by_workspace on identities (workspace_id, identity_id) include (external_id)
  where deleted_at is null;

drop trigger identities_stamp on identities;
create trigger identities_stamp before update on identities for each row
  when (old.external_id <> new.external_id or old.meta::text <> new.meta::text or old.updated_at <> new.updated_at
    or old.deleted_at is distinct from new.deleted_at)
  execute function stamp_with_epoch();

-- The identity of a key, unless it was deleted. Locked, so that it stays so until the end of the transaction: a change of
-- the key is recorded in the audit either before the deletion, with the identity, or after it, without. Volatile, so that
-- it sees a deletion which was committed while the statement waited for its lock.
create function living_identity(id text) returns text language plpgsql volatile strict as $$
begin
  return (select i.identity_id from identities i where i.identity_id = id and i.deleted_at is null for key share);
end $$;

-- What the removal of rows means for caches. A row that was deleted before (deleted_at) has the epoch of its deletion: what
-- was read before that epoch is worth nothing, and all that was read later knows of the deletion. So the removal of old
-- tombstones costs caches nothing, and is safe at any age. Of rows that were removed while they lived, all that was read so
-- far is worth nothing, as it was with 0003: nobody can tell which they were.
create function forget_removed_rows() returns trigger language plpgsql as $$
begin
  if exists (select from removed where deleted_at is null) then
    update epoch set value = value + 1, removed_at = value + 1;
  else
    update epoch set removed_at = (select max(changed_epoch) from removed)
    where removed_at < (select max(changed_epoch) from removed);
  end if;
  return null;
end $$;
drop trigger keys_removed on keys;
create trigger keys_removed after delete on keys referencing old table as removed
  for each statement execute function forget_removed_rows();
create trigger identities_removed after delete on identities referencing old table as removed
  for each statement execute function forget_removed_rows();
create trigger keys_truncated after truncate on keys
  for each statement execute function forget_what_was_removed();
create trigger identities_truncated after truncate on identities
  for each statement execute function forget_what_was_removed();

-- Tombstones in the order of their deletion, to be removed when they are old.
create index keys_deleted on keys (deleted_at) where deleted_at is not null;
create index identities_deleted on identities (deleted_at) where deleted_at is not null;
