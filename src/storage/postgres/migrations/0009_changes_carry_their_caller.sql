-- Every statement that changes something for a key calls this in its last part. It fails unless the key is as it was when
-- the service authorized the call, and its workspace is enabled: then nothing of the statement is kept, and the service
-- authorizes the call anew. Volatile, so that it sees what is committed by now, and not what was when the statement began:
-- it may have waited for a lock since. Where the statement itself has changed the calling key, it has locked that row as
-- it was when this was last asked (by changed_epoch), and finds its own work here.
create function require_as_authorized(caller text, its_scopes text[], its_expiry timestamptz) returns boolean
language plpgsql volatile as $$
begin
  perform from keys k join workspaces w using (workspace_id)
  where k.key_id = caller collate "C" and w.disabled_at is null
    and (k.xmin = pg_current_xact_id_if_assigned()::xid
      or (k.deleted_at is null and k.enabled and k.scopes = its_scopes
        and k.expires_at is not distinct from its_expiry));
  if not found then
    raise exception 'the calling key is not as it was authorized' using errcode = 'LK001';
  end if;
  return true;
end $$;
