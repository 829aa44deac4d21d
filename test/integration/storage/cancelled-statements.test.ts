import { once } from "node:events";
import { type AddressInfo, connect, createServer } from "node:net";
import { setTimeout as sleep } from "node:timers/promises";
import { afterAll, beforeAll, describe, expect, inject, it, onTestFinished } from "vitest";
import { openConnections } from "../../../src/storage/postgres/database.js";
import { addressOf, byPort } from "../../support/backend-address.js";
import { createDatabase } from "../../support/harness.js";

let database: Awaited<ReturnType<typeof createDatabase>>;
beforeAll(async () => {
  database = await createDatabase(inject("template"));
});
afterAll(() => database.drop());

/** Connections to Postgres by way of somebody who reads along, and who can turn away new ones, or let them wait. */
async function openOverheard(connections: number) {
  const heard: Buffer[] = [];
  let delayMs = 0;
  const server = createServer(async (near) => {
    await sleep(delayMs);
    const far = connect(addressOf(database.url));
    for (const socket of [near, far]) socket.on("error", () => {});
    near.on("data", (bytes) => heard.push(bytes));
    near.pipe(far).pipe(near);
  }).listen(0, "127.0.0.1");
  await once(server, "listening");
  const opened = openConnections(byPort(database.url, (server.address() as AddressInfo).port), {
    connections,
    statementMs: 10_000,
  });
  onTestFinished(async () => {
    await opened.close();
    server.close();
  });
  await opened.sql`select 1`;
  return {
    sql: opened.sql,
    heard: () => Buffer.concat(heard).toString(),
    turnAwayNewOnes: () => server.close(),
    delayNewOnes: (ms: number) => {
      delayMs = ms;
    },
  };
}

/** How a statement ends that is being waited for. */
const ending = (statement: PromiseLike<unknown>) =>
  Promise.resolve(statement).then(
    () => "done",
    (error: Error) => error.message,
  );

describe("a statement that is cancelled", () => {
  it("while it runs, ends in Postgres", async () => {
    const { sql } = await openOverheard(1);
    const slow = sql`select pg_sleep(8)`;
    const end = ending(slow);
    await sleep(50);
    slow.cancel();
    expect(await end).toMatch(/canceling statement/);
    expect([...(await sql`select 1 as number`)]).toEqual([{ number: 1 }]);
  });

  it("while it runs, on a connection by a socket in the file system, ends in Postgres", async () => {
    expect(addressOf(database.url)).toHaveProperty("path");
    const { sql, close } = openConnections(database.url, { connections: 1, statementMs: 10_000 });
    onTestFinished(close);
    const slow = sql`select pg_sleep(8)`;
    const end = ending(slow);
    await sleep(50);
    slow.cancel();
    expect(await end).toMatch(/canceling statement/);
  });

  it("while it waits behind one that takes long, is never sent", async () => {
    const { sql, heard } = await openOverheard(1);
    const slow = ending(sql`select pg_sleep(0.3)`);
    await sleep(50);
    const queued = sql`select 'this was not to be heard'`;
    const end = ending(queued);
    await sleep(50);
    queued.cancel();
    expect(await end).toMatch(/before it was sent/);
    expect(await slow).toBe("done");
    await sql`select 'but this'`;
    expect(heard()).toContain("but this");
    expect(heard()).not.toContain("this was not to be heard");
  });

  it("before anybody waits for it, is never sent", async () => {
    const { sql, heard } = await openOverheard(1);
    const early = sql`select 'too early'`;
    early.cancel();
    expect(await ending(early)).toMatch(/before it was sent/);
    expect(heard()).not.toContain("too early");
  });

  it("goes on without harm if the server cannot be told", async () => {
    const { sql, turnAwayNewOnes } = await openOverheard(1);
    const slow = sql`select pg_sleep(0.5)`;
    const end = ending(slow);
    await sleep(50);
    turnAwayNewOnes();
    slow.cancel();
    expect(await end).toBe("done");
  });

  it("and ends before Postgres hears of it, does not take the next one with it", async () => {
    const { sql, delayNewOnes } = await openOverheard(1);
    delayNewOnes(400);
    const short = sql`select pg_sleep(0.2)`;
    const next = sql`select 1 as number, pg_sleep(0.6)::text`;
    const [end, found] = [ending(short), Promise.resolve(next)];
    await sleep(50);
    short.cancel();
    expect(await end).toBe("done");
    expect(await found).toMatchObject([{ number: 1 }]);
  });

  it("after some of its rows have come leaves the next one's result as it is, of a read and of a change", async () => {
    const { sql } = await openOverheard(1);
    await sql`create table if not exists notes (note text)`;
    const next = [
      () => sql`select 'read' as note`,
      () => sql`with added as (insert into notes values ('made') returning note) select note from added`,
      () => sql`select note from notes where note = 'nothing'`,
    ];
    for (const [index, write] of next.entries()) {
      const many = sql`select repeat('x', 1000), pg_sleep(0.002)::text from generate_series(1, 4000)`;
      const end = ending(many);
      await sleep(200); // PostgreSQL sends what it has in pieces of 8 KiB
      many.cancel();
      expect(await end).toMatch(/canceling statement/);
      expect([...(await write())]).toEqual([[{ note: "read" }], [{ note: "made" }], []][index]);
    }
    expect((await sql`select from notes`).count).toBe(1);
  });

  it("at any moment takes nobody with it: all others get their own results", async () => {
    const { sql } = await openOverheard(2);
    let cancelled = 0;
    const ask = async (number: number) => {
      const statement = sql`select ${number}::int as number, pg_sleep(${number % 3 === 0 ? 0.01 : 0})::text`;
      if (number % 3 === 0) {
        const end = ending(statement);
        await sleep(number % 10);
        statement.cancel();
        if ((await end) !== "done") cancelled += 1;
      } else {
        expect((await statement)[0]).toMatchObject({ number });
      }
    };
    for (let round = 0; round < 20; round++) {
      await Promise.all(Array.from({ length: 30 }, (_, index) => ask(round * 30 + index)));
    }
    expect(cancelled).toBeGreaterThan(20);
  });
});

describe("a statement", () => {
  it("does not wait for one that takes long, if another connection is free or fast", async () => {
    const { sql } = await openOverheard(2);
    const slow = sql`select pg_sleep(8)`;
    const end = ending(slow);
    await sleep(50);
    const asked = Array.from({ length: 40 }, (_, number) => sql`select ${number}::int as number`);
    expect((await Promise.all(asked)).map(([row]) => row?.["number"])).toEqual(asked.map((_, number) => number));
    slow.cancel();
    expect(await end).toMatch(/canceling statement/);
  });
});
