import { once } from "node:events";
import { type AddressInfo, connect, createServer, Socket } from "node:net";
import { afterAll, beforeAll, describe, expect, inject, it, onTestFinished } from "vitest";
import { type Database, openDatabase } from "../../../src/storage/postgres/database.js";
import { classifyError } from "../../../src/storage/postgres/errors.js";
import { addressOf, byPort } from "../../support/backend-address.js";
import { createDatabase } from "../../support/harness.js";

let database: Awaited<ReturnType<typeof createDatabase>>;
beforeAll(async () => {
  database = await createDatabase(inject("template"));
});
afterAll(() => database.drop());

/** The far end of one connection to Postgres, as a saboteur sees it. */
interface Link {
  /** What the service's connection ends in. */
  readonly near: Socket;
  /** What passes on the bytes of Postgres. */
  pass: (bytes: Buffer) => void;
}

/** A single connection to Postgres, by way of somebody who can break it at a chosen moment. */
async function openSabotaged(): Promise<{ db: Database; link: () => Link }> {
  let link: Link | undefined;
  const server = createServer((near) => {
    const far = connect(addressOf(database.url));
    const opened: Link = { near, pass: (bytes) => void near.write(bytes) };
    link = opened;
    for (const socket of [near, far]) socket.on("error", () => {});
    near.pipe(far);
    far.on("data", (bytes: Buffer) => opened.pass(bytes));
    near.on("close", () => far.destroy());
    far.on("close", () => near.destroy());
  }).listen(0, "127.0.0.1");
  await once(server, "listening");
  const db = openDatabase(byPort(database.url, (server.address() as AddressInfo).port), {
    connections: 1,
    statementMs: 10_000,
  });
  onTestFinished(async () => {
    await db.close();
    server.close();
  });
  await db.runInBackground((sql) => sql`select 1`);
  return {
    db,
    link: () => {
      if (link === undefined) throw new Error("nobody has connected");
      return link;
    },
  };
}

/** How a statement ended: with what it returned, or as out of reach. */
async function ending<T>(statement: PromiseLike<T>): Promise<T | "out of reach"> {
  try {
    return await statement;
  } catch (error) {
    expect(classifyError(error)?.sentence).toMatch(/cannot reach/);
    return "out of reach";
  }
}

describe("a connection that breaks is never taken for an answer", () => {
  it("a statement that comes between its error and its end is not taken for done", async () => {
    const { db, link } = await openSabotaged();
    await db.runInBackground((sql) => sql`create table if not exists notes (note text)`);
    const statements: Promise<unknown>[] = [];
    const emit = Socket.prototype.emit;
    onTestFinished(() => {
      Socket.prototype.emit = emit;
    });
    // The service's end of the connection is the one whose peer is the saboteur.
    const port = link().near.localPort;
    const ours = (socket: Socket) => socket !== link().near && socket.remotePort === undefined && port !== undefined;
    Socket.prototype.emit = function (this: Socket, name: string | symbol, ...rest: unknown[]): boolean {
      const heard = Reflect.apply(emit, this, [name, ...rest]);
      if (name === "error" && statements.length === 0 && ours(this)) {
        for (const note of ["first", "second"]) {
          statements.push(ending(db.runInBackground((sql) => sql`insert into notes values (${note})`)));
        }
      }
      return heard;
    };
    link().near.resetAndDestroy();
    await expect.poll(() => statements.length, { timeout: 5_000 }).toBe(2);

    const ends = await Promise.all(statements);
    const stored = await db.runInBackground((sql) => sql`select note from notes`);
    expect(stored.length).toBe(ends.filter((end) => end !== "out of reach").length);
  });

  it("the rows of a result that broke off do not get into the next one", async () => {
    const { db, link } = await openSabotaged();
    const broken = link();
    // Passes on what Postgres says up to the first row, and ends there.
    broken.pass = (bytes) => {
      const rowAt = firstMessage(bytes, "D");
      broken.near.write(rowAt === undefined ? bytes : bytes.subarray(0, rowAt));
      if (rowAt !== undefined) setTimeout(() => broken.near.destroy(), 50);
    };
    expect(await ending(db.runInBackground((sql) => sql`select 2 as number`))).toBe("out of reach");
    for (let attempt = 0; attempt < 5; attempt++) {
      expect([...(await db.runInBackground((sql) => sql`select 3 as number`))]).toEqual([{ number: 3 }]);
    }
  });
});

/** Where the first message of this type ends. */
function firstMessage(bytes: Buffer, type: string): number | undefined {
  for (let at = 0; at + 5 <= bytes.length; ) {
    const end = at + 1 + bytes.readUInt32BE(at + 1);
    if (String.fromCharCode(bytes[at] ?? 0) === type) return end;
    at = end;
  }
  return undefined;
}
