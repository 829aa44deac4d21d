import { once } from "node:events";
import { type AddressInfo, connect, createServer } from "node:net";
import { setTimeout as sleep } from "node:timers/promises";
import type { Row } from "postgres";
import { afterAll, beforeAll, describe, expect, inject, it, onTestFinished } from "vitest";
import { abortCall, type Call } from "../../../src/call/call.js";
import { cancelled as cancelledError } from "../../../src/errors.js";
import { type Database, openDatabase } from "../../../src/storage/postgres/database.js";
import { type Fragment, sql } from "../../../src/storage/postgres/sql.js";
import { addressOf, byPort } from "../../support/backend-address.js";
import { createDatabase } from "../../support/harness.js";

let database: Awaited<ReturnType<typeof createDatabase>>;
beforeAll(async () => {
  database = await createDatabase(inject("template"));
});
afterAll(() => database.drop());

/** Connections to PostgreSQL through a proxy that records what is sent, and can refuse or delay new connections. */
async function openRecorded(connections: number) {
  const sent: Buffer[] = [];
  let delayMs = 0;
  const server = createServer(async (client) => {
    await sleep(delayMs);
    const upstream = connect(addressOf(database.url));
    for (const socket of [client, upstream]) socket.on("error", () => {});
    client.on("data", (bytes) => sent.push(bytes));
    client.pipe(upstream).pipe(client);
  }).listen(0, "127.0.0.1");
  await once(server, "listening");
  const db = openDatabase(byPort(database.url, (server.address() as AddressInfo).port), {
    connections,
    statementMs: 10_000,
  });
  onTestFinished(async () => {
    await db.close();
    server.close();
  });
  await db.runInBackground(sql`select 1`);
  return {
    db,
    sent: () => Buffer.concat(sent).toString(),
    refuseConnections: () => server.close(),
    delayConnections: (ms: number) => {
      delayMs = ms;
    },
  };
}

const openCall = (): Call => ({ requestId: "req_test", deadline: Number.POSITIVE_INFINITY });

/** Runs a statement for a call of its own, which can be aborted. */
function start(db: Database, statement: Fragment<Row[]>) {
  const call = openCall();
  return { result: db.run(call, statement), abort: () => abortCall(call, cancelledError()) };
}

/** "done", or the message of the error. */
const ending = (result: Promise<unknown>) =>
  result.then(
    () => "done",
    (error: Error) => error.message,
  );

describe("cancellation of a statement", () => {
  it("while it runs, ends it in PostgreSQL", async () => {
    const { db } = await openRecorded(1);
    const slow = start(db, sql`select pg_sleep(8)`);
    const end = ending(slow.result);
    await sleep(50);
    slow.abort();
    expect(await end).toMatch(/canceling statement/);
    expect([...(await db.runInBackground(sql`select 1 as number`))]).toEqual([{ number: 1 }]);
  });

  it("while it runs, on a Unix socket, ends it in PostgreSQL", async () => {
    expect(addressOf(database.url)).toHaveProperty("path");
    const db = openDatabase(database.url, { connections: 1, statementMs: 10_000 });
    onTestFinished(db.close);
    const slow = start(db, sql`select pg_sleep(8)`);
    const end = ending(slow.result);
    await sleep(50);
    slow.abort();
    expect(await end).toMatch(/canceling statement/);
  });

  it("while it waits for a connection: it is never sent", async () => {
    const { db, sent } = await openRecorded(1);
    const slow = ending(db.runInBackground(sql`select pg_sleep(0.3)`));
    await sleep(50);
    const queued = start(db, sql`select 'this must not be sent'`);
    const end = ending(queued.result);
    await sleep(50);
    queued.abort();
    expect(await end).toMatch(/before it was sent/);
    expect(await slow).toBe("done");
    await db.runInBackground(sql`select 'this is sent'`);
    expect(sent()).toContain("this is sent");
    expect(sent()).not.toContain("this must not be sent");
  });

  it("before it starts: it is never sent", async () => {
    const { db, sent } = await openRecorded(1);
    const call = openCall();
    abortCall(call, cancelledError());
    await expect(db.run(call, sql`select 'too early'`)).rejects.toBe(call.abortReason);
    expect(sent()).not.toContain("too early");
  });

  it("has no effect if the cancel request cannot be sent", async () => {
    const { db, refuseConnections } = await openRecorded(1);
    const slow = start(db, sql`select pg_sleep(0.5)`);
    const end = ending(slow.result);
    await sleep(50);
    refuseConnections();
    slow.abort();
    expect(await end).toBe("done");
  });

  it("that arrives after its end does not cancel the next statement", async () => {
    const { db, delayConnections } = await openRecorded(1);
    delayConnections(400);
    const short = start(db, sql`select pg_sleep(0.2)`);
    const next = db.runInBackground(sql`select 1 as number, pg_sleep(0.6)::text`);
    const end = ending(short.result);
    await sleep(50);
    short.abort();
    expect(await end).toBe("done");
    expect(await next).toMatchObject([{ number: 1 }]);
  });

  it("after some of its rows have arrived leaves the next result complete, of a read and of a change", async () => {
    const { db } = await openRecorded(1);
    await db.runInBackground(sql`create table if not exists notes (note text)`);
    const next = [
      sql`select 'read' as note`,
      sql`with added as (insert into notes values ('made') returning note) select note from added`,
      sql`select note from notes where note = 'nothing'`,
    ];
    for (const [index, statement] of next.entries()) {
      const many = start(db, sql`select repeat('x', 1000), pg_sleep(0.002)::text from generate_series(1, 4000)`);
      const end = ending(many.result);
      await sleep(200); // PostgreSQL sends its output in pieces of 8 KiB
      many.abort();
      expect(await end).toMatch(/canceling statement/);
      expect([...(await db.runInBackground(statement))]).toEqual([[{ note: "read" }], [{ note: "made" }], []][index]);
    }
    expect((await db.runInBackground(sql`select from notes`)).count).toBe(1);
  });

  it("at any moment affects no other statement: all others get their own results", async () => {
    const { db } = await openRecorded(2);
    let cancelled = 0;
    const run = async (number: number) => {
      const seconds = number % 3 === 0 ? 0.01 : 0;
      const { result, abort } = start(db, sql`select ${number}::int as number, pg_sleep(${seconds})::text`);
      if (number % 3 === 0) {
        const end = ending(result);
        await sleep(number % 10);
        abort();
        if ((await end) !== "done") cancelled += 1;
      } else {
        expect((await result)[0]).toMatchObject({ number });
      }
    };
    for (let round = 0; round < 20; round++) {
      await Promise.all(Array.from({ length: 30 }, (_, index) => run(round * 30 + index)));
    }
    expect(cancelled).toBeGreaterThan(20);
  });
});

it("a statement does not wait for a slow one while another connection is free or fast", async () => {
  const { db } = await openRecorded(2);
  const slow = start(db, sql`select pg_sleep(8)`);
  const end = ending(slow.result);
  await sleep(50);
  const results = Array.from({ length: 40 }, (_, number) => db.runInBackground(sql`select ${number}::int as number`));
  expect((await Promise.all(results)).map(([row]) => row?.["number"])).toEqual(results.map((_, number) => number));
  slow.abort();
  expect(await end).toMatch(/canceling statement/);
});
