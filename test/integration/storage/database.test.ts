import { setFlagsFromString } from "node:v8";
import { runInThisContext } from "node:vm";
import { afterAll, beforeAll, expect, inject, it, onTestFinished } from "vitest";
import { openSql } from "../../../commands/open-sql.js";
import { openDatabase } from "../../../src/storage/postgres/database.js";
import { jsonParameter, sql, textArrayParameter } from "../../../src/storage/postgres/sql.js";
import { createDatabase } from "../../support/harness.js";

let database: Awaited<ReturnType<typeof createDatabase>>;
beforeAll(async () => {
  database = await createDatabase(inject("template"));
});
afterAll(() => database.drop());

it("the parts of a statement are composed in their order, and every value is a parameter", async () => {
  const db = openDatabase(database.url, { connections: 1, statementMs: 10_000 });
  onTestFinished(db.close);
  const attack = "'; drop table keys; --";
  const second = sql`${attack}::text as second, ${jsonParameter({ b: 1, a: 2 })}::text as third`;
  const [row] = await db.runInBackground(sql`
    select ${1}::int as first, ${second}, ${textArrayParameter(["x,y", '"'])} as fourth, ${null}::text as fifth
    from ${sql("cluster_state")} ${sql``} where ${sql("only_row")}`);
  expect(row).toEqual({ first: 1, second: attack, third: '{"b":1,"a":2}', fourth: ["x,y", '"'], fifth: null });
  await expect(db.runInBackground(sql`select ${sql('a" from keys; --')} from keys`)).rejects.toThrow(
    'column "a" from keys; --" does not exist',
  );
});

it("a statement with a parameter that cannot be sent rejects, and its connection serves the next statement", async () => {
  const db = openDatabase(database.url, { connections: 1, statementMs: 10_000 });
  onTestFinished(db.close);
  await expect(db.runInBackground(sql`select ${new Date(Number.NaN)}::timestamptz`)).rejects.toThrow(
    "Invalid time value",
  );
  expect(await db.runInBackground(sql`select 1 as one`)).toMatchObject([{ one: 1 }]);
});

it("every statement is prepared once, also one without parameters", async () => {
  const db = openDatabase(database.url, { connections: 1, statementMs: 10_000 });
  onTestFinished(db.close);
  for (let round = 0; round < 2; round++) {
    await db.runInBackground(sql`select 1 as without_parameters`);
    await db.runInBackground(sql`select ${round}::int as with_parameters`);
  }
  const rows = await db.runInBackground(
    sql<{ statement: string }[]>`
      select statement from pg_prepared_statements where statement like '%_parameters' order by statement`,
  );
  expect(rows.map(({ statement }) => statement)).toEqual([
    "select $1::int as with_parameters",
    "select 1 as without_parameters",
  ]);
});

/** Whether V8 keeps the properties of an object in a form for optimized code, and not in a dictionary. */
function hasFastProperties(object: object): boolean {
  setFlagsFromString("--allow-natives-syntax");
  try {
    return runInThisContext("(object) => %HasFastProperties(object)")(object);
  } finally {
    setFlagsFromString("--no-allow-natives-syntax");
  }
}

it("V8 can optimize the classes of statements and results of postgres.js", async () => {
  const connection = openSql(database.url);
  onTestFinished(() => connection.end());
  const { constructor: ofStatements } = connection`select`;
  const { constructor: ofResults } = await connection`select`;

  const db = openDatabase(database.url, { connections: 1, statementMs: 10_000 });
  onTestFinished(db.close);
  await db.runInBackground(sql`select`);
  expect({ statements: hasFastProperties(ofStatements), results: hasFastProperties(ofResults) }).toEqual({
    statements: true,
    results: true,
  });
});
