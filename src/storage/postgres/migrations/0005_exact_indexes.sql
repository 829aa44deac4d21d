-- Indexes of externalIds, names and slugs that contain the id. The unique indexes do not, so a lookup of an id had to read a
-- row of the table, too, and an index that has the whole workspace seemed cheaper where workspaces are small on average. Then
-- the planner read all entries of a large workspace. The unique indexes stay: to replace them would lock the tables for reads.

-- All locks first. A statement can have one of these tables locked and wait for another: then PostgreSQL fails that statement,
-- which is sent again. With a lock after the work, it would fail the migration. Until the end, about 2 s for each million
-- identities, changes of these tables wait.
lock table identities, roles, permissions in share mode;

create index identities_to_id on identities (workspace_id, external_id) include (identity_id) where deleted_at is null;
create index roles_to_id on roles (workspace_id, name) include (role_id) where deleted_at is null;
create index permissions_to_id on permissions (workspace_id, slug) include (permission_id);
