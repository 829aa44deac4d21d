-- What a key may do with this service is told by its scopes; its permissions are the words of the user's own application,
-- which only a verification compares. Until now the permissions were both. So that keys that are in use go on, each gets
-- as scopes those of its permissions that were good for something here. The permissions stay as they are: verifications
-- answer as before.
alter table keys add column scopes text[] not null default '{}';

drop trigger keys_stamp on keys;
update keys set scopes = found.scopes
from (
  select key_id, array_agg(permission order by position) as scopes
  from keys, unnest(permissions) with ordinality as held (permission, position)
  where permission in ('*', 'keys.*', 'identities.*', 'audit.*', 'keys.create', 'keys.read', 'keys.update', 'keys.delete',
    'keys.verify', 'identities.create', 'identities.read', 'identities.update', 'identities.delete', 'audit.read')
  group by key_id) as found
where keys.key_id = found.key_id;

create trigger keys_stamp
  before update of workspace_id, hash, name, enabled, scopes, permissions, identity_id, meta, expires_at, deleted_at on keys
  for each row execute function stamp_with_epoch();

create or replace function told(k keys) returns json language sql stable as $$
  select json_build_object('start', k.start, 'name', k.name, 'enabled', k.enabled, 'scopes', k.scopes,
    'permissions', k.permissions, 'identityId', k.identity_id, 'meta', k.meta,
    'expires', (extract(epoch from k.expires_at) * 1000)::bigint)
$$;
