/**
 * The statements that move the clock of a test's database: what the service asks for its time are functions of the
 * database's own, found before those of PostgreSQL.
 */
export function clockAhead(ms: number): string {
  const ahead = `interval '${ms} milliseconds'`;
  return `
    create or replace function public.now() returns timestamptz language sql stable
      as $$ select pg_catalog.now() + ${ahead} $$;
    create or replace function public.clock_timestamp() returns timestamptz language sql volatile
      as $$ select pg_catalog.clock_timestamp() + ${ahead} $$;`;
}

/** Makes the sessions of a database find them. */
export function withMovableClock(database: string): string {
  return `alter database ${database} set search_path = public, pg_catalog`;
}
