-- What each workspace stores: keys and identities that were not deleted, and the bytes of these and of its audit events. In
-- several rows for each workspace, which are added up: changes of one workspace at once do not wait for each other's row.
create table usage (
  workspace_id text collate "C" not null,
  shard smallint not null,
  keys bigint not null,
  identities bigint not null,
  bytes bigint not null,
  primary key (workspace_id, shard)
) with (fillfactor = 50);

-- How many bytes a key or an identity counts for: what the audit tells of it, and a constant for the rest of the row and its
-- index entries; 0 for none. Not the size on disk, which depends on compression: what is subtracted in the end must be what
-- was added in the beginning. So the identity of a key, which it loses without an event, counts for nothing.
create function bytes_of(told json) returns bigint language sql immutable parallel safe as $$
  select coalesce(300 + octet_length(told::text) - coalesce(octet_length((told -> 'identityId')::text), 0), 0)::bigint
$$;
create function bytes_of_event(before json, after json) returns bigint language sql immutable parallel safe as $$
  select (400 + coalesce(octet_length(before::text), 0) + coalesce(octet_length(after::text), 0))::bigint
$$;

-- Every change writes its event in its own statement, so the events tell all that is to be counted: one trigger, instead of
-- one on each table. It counts by statement, since a statement that counted row by row would write the usage as often. It runs
-- after everything else in its statement, the lock of the epoch included: no transaction waits for the epoch while it has
-- locked a row of usage. Connections that work at the same time rarely have the same one of the 16 rows.
create function count_usage() returns trigger language plpgsql as $$
begin
  insert into usage (workspace_id, shard, keys, identities, bytes)
  select workspace_id, pg_backend_pid() % 16,
    sum(case type when 'key.create' then 1 when 'key.delete' then -1 else 0 end),
    sum(case type when 'identity.create' then 1 when 'identity.delete' then -1 else 0 end),
    sum(bytes_of_event(before, after)
      + case when type like 'workspace.%' then 0 else bytes_of(after) - bytes_of(before) end)
  from added group by workspace_id order by workspace_id
  on conflict (workspace_id, shard) do update set keys = usage.keys + excluded.keys,
    identities = usage.identities + excluded.identities, bytes = usage.bytes + excluded.bytes;
  return null;
end $$;
create trigger audit_events_added after insert on audit_events referencing new table as added
  for each statement execute function count_usage();

-- Events are removed when they are old; what they told of stays.
create function count_removed_events() returns trigger language plpgsql as $$
begin
  insert into usage (workspace_id, shard, keys, identities, bytes)
  select workspace_id, pg_backend_pid() % 16, 0, 0, -sum(bytes_of_event(before, after))
  from removed group by workspace_id order by workspace_id
  on conflict (workspace_id, shard) do update set bytes = usage.bytes + excluded.bytes;
  return null;
end $$;
create trigger audit_events_removed after delete on audit_events referencing old table as removed
  for each statement execute function count_removed_events();

-- What is there already.
insert into usage (workspace_id, shard, keys, identities, bytes)
select workspace_id, 0, sum(keys), sum(identities), sum(bytes) from (
  select workspace_id, count(*) as keys, 0 as identities, sum(bytes_of(told(k))) as bytes
  from keys k where deleted_at is null group by workspace_id
  union all
  select workspace_id, 0, count(*), sum(bytes_of(told(i))) from identities i where deleted_at is null group by workspace_id
  union all
  select workspace_id, 0, 0, sum(bytes_of_event(before, after)) from audit_events group by workspace_id) as stored
group by workspace_id;
