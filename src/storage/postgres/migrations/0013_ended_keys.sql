-- An end that was asked for is a state, as a deletion is: whoever follows the changes learns of it, and no clock decides. So
-- ends a key that is rerolled without a grace period, and one that is given an expiry which has passed. An expiry that
-- passes by itself is judged by the database's clock.
alter table keys add column ended boolean not null default false;

drop trigger keys_stamp on keys;
create trigger keys_stamp
  before update of workspace_id, hash, name, enabled, scopes, permissions, identity_id, meta, expires_at, ended, deleted_at
  on keys for each row execute function stamp_with_epoch();

-- As in 0009, and a key that has ended is not as it was authorized.
create or replace function require_as_authorized(caller text, its_scopes text[], its_expiry timestamptz) returns boolean
language plpgsql volatile as $$
begin
  perform from keys k join workspaces w using (workspace_id)
  where k.key_id = caller collate "C" and w.disabled_at is null
    and (k.xmin = pg_current_xact_id_if_assigned()::xid
      or (k.deleted_at is null and k.enabled and not k.ended and k.scopes = its_scopes
        and k.expires_at is not distinct from its_expiry));
  if not found then
    raise exception 'the calling key is not as it was authorized' using errcode = 'LK001';
  end if;
  return true;
end $$;
