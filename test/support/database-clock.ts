/**
 * The statements that advance the clock of a test's database. The service gets its time from functions of the database,
 * which the search path finds before those of PostgreSQL.
 */
export function clockAhead(ms: number): string {
  const ahead = `interval '${ms} milliseconds'`;
  return `
    create or replace function public.now() returns timestamptz language sql stable
      as $$ select pg_catalog.now() + ${ahead} $$;
    create or replace function public.clock_timestamp() returns timestamptz language sql volatile
      as $$ select pg_catalog.clock_timestamp() + ${ahead} $$;`;
}

/** Makes the sessions of a database find these functions. */
export function withMovableClock(database: string): string {
  return `alter database ${database} set search_path = public, pg_catalog`;
}
