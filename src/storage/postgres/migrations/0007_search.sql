-- A text with letter case aside, for all letters, whatever the locale of the database: by a collation that PostgreSQL
-- brings along from version 17 on, else by that of ICU, with which nearly all others are built. Where there is neither, or
-- the encoding of the database is not for them, its own locale decides: then letters beyond ASCII may keep their case, but
-- what was stored is always found by itself. In capitals at last, since small letters can depend on their neighbours.
do $$
declare
  candidate text;
begin
  foreach candidate in array array['pg_c_utf8', 'und-x-icu', 'default'] loop
    begin
      execute format('create or replace function folded(text) returns text language sql immutable parallel safe
        as ''select upper(lower($1 collate %I))''', candidate);
      perform folded('a');
      return;
    exception when undefined_object or feature_not_supported then
      if candidate = 'default' then raise; end if;
    end;
  end loop;
end $$;
