-- A list with a filter walks through an index in its order, for a bounded number of entries. What the filter needs stands in
-- the index, so that the rows themselves need not be read.
drop index keys_by_workspace;
create index keys_by_workspace on keys (workspace_id, key_id) include (enabled) where deleted_at is null;
-- Deleted keys are in it, too: the reference of keys to identities asks for them.
drop index keys_by_identity;
create index keys_by_identity on keys (identity_id, key_id) include (enabled, deleted_at) where identity_id is not null;
drop index audit_events_by_workspace;
create index audit_events_by_workspace on audit_events (workspace_id, position) include (type, at);

-- Old events are removed in the order of their time.
create index audit_events_by_time on audit_events (at);
