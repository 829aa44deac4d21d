import { setFlagsFromString } from "node:v8";
import { runInThisContext } from "node:vm";
import { afterAll, beforeAll, describe, expect, inject, it, onTestFinished } from "vitest";
import { openSql } from "../../../commands/open-sql.js";
import { abortCall } from "../../../src/call/call.js";
import { cancelled } from "../../../src/errors.js";
import { openDatabase } from "../../../src/storage/postgres/database.js";
import { pageOf } from "../../../src/storage/postgres/paging.js";
import { type Fragment, jsonParameter, sql, textArrayParameter } from "../../../src/storage/postgres/sql.js";
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

describe("a statement with many variants", () => {
  /** A sum of the given numbers, with any of the optional parts that a caller can choose. */
  const sum = (numbers: readonly number[]) =>
    sql<{ sum: number }[]>`
      select ${numbers.reduce((all, number) => sql`${all} + ${number}::int`, sql`0`)} as sum, 'with variants' as of`;
  const numbersUpTo = (count: number) => Array.from({ length: count }, (_, index) => index + 1);
  const textsLike = (text: string) => sql<{ statement: string }[]>`
    select statement from pg_prepared_statements where statement like ${`%${text}%`} and statement not like '%pg_prepared%'`;

  it("has at most 20 of them prepared on a connection, returns the right rows, and leaves others prepared", async () => {
    const db = openDatabase(database.url, { connections: 1, statementMs: 10_000 });
    onTestFinished(db.close);
    for (let round = 0; round < 2; round++) {
      for (let count = 1; count <= 50; count++) {
        const rows = await db.runInBackground(sum(numbersUpTo(count)));
        expect(rows.map((row) => row.sum)).toEqual([(count * (count + 1)) / 2]);
      }
    }
    expect(await db.runInBackground(textsLike("with variants"))).toHaveLength(20);
    await db.runInBackground(sql`select 1 as another_statement`);
    expect(await db.runInBackground(textsLike("another_statement"))).toHaveLength(1);
  });

  it("counts a text again for each combination of null and other parameters with a type", async () => {
    const db = openDatabase(database.url, { connections: 1, statementMs: 10_000 });
    onTestFinished(db.close);
    const times = Array.from({ length: 6 }, (_, index) => index);
    for (let combination = 0; combination < 2 ** times.length; combination++) {
      const parts = times.map((time) => (combination & (1 << time) ? new Date(time) : null));
      const list = parts.reduce((all, part) => sql`${all}, ${part}::timestamptz`, sql`null::timestamptz`);
      const rows = await db.runInBackground(sql<{ times: number }[]>`select num_nonnulls(${list}) as times`);
      expect(rows.map((row) => row.times)).toEqual([parts.filter((part) => part !== null).length]);
    }
    expect(await db.runInBackground(textsLike("num_nonnulls"))).toHaveLength(20);
  });

  it("leaves the variants of another list prepared, although lists have a part of their text in common", async () => {
    const db = openDatabase(database.url, { connections: 1, statementMs: 10_000 });
    onTestFinished(db.close);
    const run = (rows: Fragment) => db.runInBackground(pageOf(rows, sql`of`, 1));
    for (let count = 1; count <= 50; count++) await run(sql`select * from (${sum(numbersUpTo(count))}) as first_list`);
    await run(sql`select * from (${sum([1])}) as second_list`);
    expect(await db.runInBackground(textsLike("first_list"))).toHaveLength(20);
    expect(await db.runInBackground(textsLike("second_list"))).toHaveLength(1);
  });

  it("returns the right rows if lookups of prepared and other variants are in flight on one connection", async () => {
    const db = openDatabase(database.url, { connections: 1, statementMs: 10_000 });
    onTestFinished(db.close);
    const call = { requestId: "req_test", deadline: Number.POSITIVE_INFINITY, workspaceId: "ws_test" };
    for (let round = 0; round < 3; round++) {
      const found = await Promise.all(
        numbersUpTo(50).map(async (count) => (await db.readOne(call, sum(numbersUpTo(count))))[0]?.sum),
      );
      expect(found).toEqual(numbersUpTo(50).map((count) => (count * (count + 1)) / 2));
    }
  });

  it("is cancelled, warned about and retried like any other in a variant that is not prepared", async () => {
    const db = openDatabase(database.url, { connections: 2, statementMs: 10_000 });
    onTestFinished(db.close);
    await db.runInBackground(sql`create table locked as select id, 0 as times from generate_series(1, 2) as id`);
    await db.runInBackground(sql`
      create function change_both(first int, second int) returns void language plpgsql as $$
      begin
        update locked set times = times + 1 where id = first;
        perform pg_sleep(0.2);
        update locked set times = times + 1 where id = second;
      end $$`);
    await db.runInBackground(sql`
      create function warn() returns void language plpgsql as $$ begin raise warning 'as asked'; end $$`);
    const variant = (count: number, effect: Fragment) =>
      sql`select 'with effects' as of from (${sum(numbersUpTo(count))}) as summed, (select ${effect}) as effect`;
    for (let count = 1; count <= 20; count++) await db.runInBackground(variant(count, sql`1`));

    const call = { requestId: "req_test", deadline: Number.POSITIVE_INFINITY };
    const slow = db.run(call, variant(21, sql`pg_sleep(8)`));
    setTimeout(() => abortCall(call, cancelled()), 50);
    await expect(slow).rejects.toThrow(/canceling statement/);
    await expect(db.runInBackground(variant(22, sql`warn()`))).rejects.toThrow("as asked");
    const change = (first: number, second: number) =>
      db.runInBackground(variant(23, sql`change_both(${first}, ${second})`));
    await Promise.all([change(1, 2), change(2, 1)]); // a deadlock
    expect([...(await db.runInBackground(sql`select times from locked`))]).toEqual([{ times: 2 }, { times: 2 }]);
    const texts = (await db.runInBackground(textsLike("with effects"))).map(({ statement }) => statement).join();
    expect(texts).not.toMatch(/pg_sleep|warn|change_both/);
  });
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
