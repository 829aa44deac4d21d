-- Recognizes a server whose snapshots mean nothing to a process: one that has recovered from a crash, or a standby.

-- After a crash, PostgreSQL assigns transaction ids again that snapshots have included: those of transactions that were
-- rolled back and not on the disk yet. A change with such an id would be taken for one that is known. So each run of the
-- server from one crash to the next has an id, as a part of the timeline. PostgreSQL empties an unlogged table when it
-- recovers from a crash, and keeps it in a restart.
create unlogged table server_run (
  only_row boolean primary key default true check (only_row),
  run_id uuid not null default gen_random_uuid()
);
insert into server_run default values;

-- Empty after a crash, until a process has inserted the next run. Not null, which earlier versions of the service cannot use.
create or replace function timeline() returns text language plpgsql stable as $$
declare
  secret text := (select cache_secret from cluster_state);
  run text;
begin
  if not pg_is_in_recovery() then -- a standby has no unlogged tables
    run := (select run_id from server_run);
    if run is null then
      return '';
    end if;
  end if;
  begin
    return concat_ws('/', secret, run, (select system_identifier from pg_control_system()),
      left(pg_walfile_name(pg_current_wal_insert_lsn()), 8));
  exception when others then -- where we may not read that, each start of the server counts as a failover
    return concat_ws('/', secret, run, pg_postmaster_start_time());
  end;
end $$;

-- The snapshot of the statement. It fails on a standby, whose snapshots lack the transactions in progress on the primary: what
-- was read there would seem to include their changes. Stable, so that it is the snapshot of the rest of the statement.
create function primary_snapshot() returns text language plpgsql stable as $$
begin
  if pg_is_in_recovery() then
    raise exception 'the server is a standby' using errcode = 'read_only_sql_transaction';
  end if;
  return pg_current_snapshot()::text;
end $$;
