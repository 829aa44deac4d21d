-- What each workspace stores: keys and identities that were not deleted, and the bytes of these and of its audit events. In
-- several rows for each workspace, which are added up: changes of one workspace at once do not wait for each other's row.
create table usage (
  workspace_id text collate "C" not null,
  shard smallint not null,
  keys bigint not null default 0,
  identities bigint not null default 0,
  bytes bigint not null default 0,
  primary key (workspace_id, shard)
) with (fillfactor = 50);

-- How many bytes a row counts for: its content as text, and a constant for the rest of it and its index entries. Not the
-- size on disk, which depends on compression: what is subtracted in the end must be what was added in the beginning.
create function bytes_of_key(name text, permissions text[], meta json) returns bigint language sql immutable parallel safe as $$
  select (500 + coalesce(octet_length(name), 0) + octet_length(array_to_string(permissions, ' '))
    + coalesce(octet_length(meta::text), 0))::bigint
$$;
create function bytes_of_identity(external_id text, meta json) returns bigint language sql immutable parallel safe as $$
  select (300 + 2 * octet_length(external_id) + octet_length(meta::text))::bigint
$$;
create function bytes_of_event(before json, after json) returns bigint language sql immutable parallel safe as $$
  select (400 + coalesce(octet_length(before::text), 0) + coalesce(octet_length(after::text), 0))::bigint
$$;

-- Adds to the usage of a workspace, in one of its 16 rows: connections that work at the same time rarely share one.
create function add_usage(workspace text, more_keys bigint, more_identities bigint, more_bytes bigint) returns void
language plpgsql as $$
begin
  insert into usage (workspace_id, shard, keys, identities, bytes)
  values (workspace, pg_backend_pid() % 16, more_keys, more_identities, more_bytes)
  on conflict (workspace_id, shard) do update set keys = usage.keys + excluded.keys,
    identities = usage.identities + excluded.identities, bytes = usage.bytes + excluded.bytes;
end $$;

-- After each statement, by all its rows together: counted one by one, a large statement would write the usage as often.
-- What was deleted counts for nothing: it is removed soon, and its audit events count. Triggers run after everything else
-- in their statement, the lock of the epoch included: no transaction waits for the epoch while it has locked a usage row.
create function count_rows() returns trigger language plpgsql as $$
declare
  sign integer := case tg_op when 'INSERT' then 1 else -1 end;
begin
  case tg_table_name
    when 'keys' then
      perform add_usage(workspace_id, sign * amount, 0, sign * bytes) from (
        select workspace_id, count(*) as amount, sum(bytes_of_key(name, permissions, meta))::bigint as bytes
        from counted where deleted_at is null group by workspace_id order by workspace_id) as each;
    when 'identities' then
      perform add_usage(workspace_id, 0, sign * amount, sign * bytes) from (
        select workspace_id, count(*) as amount, sum(bytes_of_identity(external_id, meta))::bigint as bytes
        from counted where deleted_at is null group by workspace_id order by workspace_id) as each;
    when 'audit_events' then
      perform add_usage(workspace_id, 0, 0, sign * bytes) from (
        select workspace_id, sum(bytes_of_event(before, after))::bigint as bytes
        from counted group by workspace_id order by workspace_id) as each;
  end case;
  return null;
end $$;
create trigger keys_usage_added after insert on keys referencing new table as counted
  for each statement execute function count_rows();
create trigger keys_usage_removed after delete on keys referencing old table as counted
  for each statement execute function count_rows();
create trigger identities_usage_added after insert on identities referencing new table as counted
  for each statement execute function count_rows();
create trigger identities_usage_removed after delete on identities referencing old table as counted
  for each statement execute function count_rows();
create trigger audit_events_usage_added after insert on audit_events referencing new table as counted
  for each statement execute function count_rows();
create trigger audit_events_usage_removed after delete on audit_events referencing old table as counted
  for each statement execute function count_rows();

-- Updates by row, and only those of what counts: not that a key was used, which is stored for many keys at a time.
create function count_key_update() returns trigger language plpgsql as $$
declare
  lived integer := (old.deleted_at is null)::integer;
  lives integer := (new.deleted_at is null)::integer;
begin
  perform add_usage(new.workspace_id, lives - lived, 0, lives * bytes_of_key(new.name, new.permissions, new.meta)
    - lived * bytes_of_key(old.name, old.permissions, old.meta));
  return null;
end $$;
create trigger keys_usage_changed after update of name, permissions, meta, deleted_at on keys
  for each row execute function count_key_update();
create function count_identity_update() returns trigger language plpgsql as $$
declare
  lived integer := (old.deleted_at is null)::integer;
  lives integer := (new.deleted_at is null)::integer;
begin
  perform add_usage(new.workspace_id, 0, lives - lived, lives * bytes_of_identity(new.external_id, new.meta)
    - lived * bytes_of_identity(old.external_id, old.meta));
  return null;
end $$;
create trigger identities_usage_changed after update of meta, deleted_at on identities
  for each row execute function count_identity_update();

-- What is there already.
insert into usage (workspace_id, shard, keys, identities, bytes)
select workspace_id, 0, sum(keys), sum(identities), sum(bytes) from (
  select workspace_id, count(*) as keys, 0 as identities, sum(bytes_of_key(name, permissions, meta)) as bytes
  from keys where deleted_at is null group by workspace_id
  union all
  select workspace_id, 0, count(*), sum(bytes_of_identity(external_id, meta))
  from identities where deleted_at is null group by workspace_id
  union all
  select workspace_id, 0, 0, sum(bytes_of_event(before, after)) from audit_events group by workspace_id) as counted
group by workspace_id;

-- Which quota a workspace has reached; null if it has room for more. A quota that is null is not asked for. Not an exception:
-- PostgreSQL would log each. Statements that run at the same time do not see each other's rows, so a quota can be exceeded
-- by as many as there are.
create function reached_quota(workspace text, most_keys bigint, most_identities bigint, most_bytes bigint) returns text
language sql stable as $$
  select case when sum(keys) >= most_keys then 'keys' when sum(identities) >= most_identities then 'identities'
    when sum(bytes) >= most_bytes then 'bytes' end
  from usage where workspace_id = workspace
$$;
