-- A process may answer from what it holds for this long after it has asked for changes. It stands here so that all
-- replicas agree: whoever changes something waits it out. Change it only while no replica runs.
alter table epoch
  add column lease_ms integer not null default 250,
  -- With it, entries in Redis are sealed: what others write there is not taken for ours.
  add column seal bytea not null default sha256(decode(replace(gen_random_uuid()::text || gen_random_uuid(), '-', ''), 'hex')),
  add constraint lease_within_reason check (lease_ms between 20 and 10000);

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

-- A row that is gone cannot be found among the changes. So a key ends by its deleted_at, and its row may go when every
-- replica has seen that.
create function refuse_early_removal() returns trigger language plpgsql as $$
begin
  raise exception 'the key % cannot be removed yet: set deleted_at, and remove its row an hour later', old.key_id
    using errcode = 'restrict_violation';
end $$;
create trigger keys_end_first before delete on keys for each row
  when (old.deleted_at is null or old.deleted_at > now() - interval '1 hour')
  execute function refuse_early_removal();
