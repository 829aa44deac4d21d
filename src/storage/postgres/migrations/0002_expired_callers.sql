-- A change is also refused once its calling key has expired by the clock of the database. The service compares the expiry
-- before it sends the statement. The statement may then wait, for a connection or a lock, until the expiry has passed. And
-- after a pause in which the clocks of a replica stood still, its estimate of the database's time is behind by that pause.
-- The rest is as in 0001_schema.sql.
create or replace function require_caller_unchanged(
  caller_id text, authorized_scopes text[], authorized_expires_at timestamptz
) returns boolean language plpgsql volatile as $$
begin
  perform from keys k join workspaces w using (workspace_id) left join apis a using (api_id)
  where k.key_id = caller_id collate "C" and w.disabled_at is null and a.deleted_at is null
    and (authorized_expires_at is null or authorized_expires_at > clock_timestamp())
    and (k.xmin = pg_current_xact_id_if_assigned()::xid
      or (k.deleted_at is null and k.enabled and not k.ended and k.scopes = authorized_scopes
        and k.expires_at is not distinct from authorized_expires_at));
  if not found then
    raise exception 'the calling key is not as it was authorized' using errcode = 'LK001';
  end if;
  return true;
end $$;
