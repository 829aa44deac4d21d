-- Lists of keys pass by what is deleted without reading it, find the few that are disabled among many, and walk through
-- the keys of an identity in their order.
drop index keys_by_workspace;
create index keys_by_workspace on keys (workspace_id, key_id) where deleted_at is null;
create index keys_disabled on keys (workspace_id, key_id) where deleted_at is null and not enabled;
drop index keys_by_identity;
create index keys_by_identity on keys (identity_id, key_id) where identity_id is not null;

-- When a key was last used is written again and again, and stands in no index: with room left on its page, such a write
-- touches that page alone and none of the indexes.
alter table keys set (fillfactor = 85);
