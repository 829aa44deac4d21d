import { once } from "node:events";
import { type AddressInfo, connect, createServer, Socket } from "node:net";
import { afterAll, beforeAll, describe, expect, inject, it, onTestFinished } from "vitest";
import { type Database, openDatabase } from "../../../src/storage/postgres/database.js";
import { classifyError } from "../../../src/storage/postgres/errors.js";
import { sql } from "../../../src/storage/postgres/sql.js";
import { addressOf, byPort } from "../../support/backend-address.js";
import { createDatabase } from "../../support/harness.js";

let database: Awaited<ReturnType<typeof createDatabase>>;
beforeAll(async () => {
  database = await createDatabase(inject("template"));
});
afterAll(() => database.drop());

/** One proxied connection to PostgreSQL. */
interface Link {
  /** The proxy's end of the connection from the service. */
  readonly client: Socket;
  /** Forwards the bytes that PostgreSQL sends. */
  forward: (bytes: Buffer) => void;
}

/** A single connection to PostgreSQL, through a proxy that can break it at a chosen moment. */
async function openProxied(): Promise<{ db: Database; link: () => Link }> {
  let link: Link | undefined;
  const server = createServer((client) => {
    const upstream = connect(addressOf(database.url));
    const opened: Link = { client, forward: (bytes) => void client.write(bytes) };
    link = opened;
    for (const socket of [client, upstream]) socket.on("error", () => {});
    client.pipe(upstream);
    upstream.on("data", (bytes: Buffer) => opened.forward(bytes));
    client.on("close", () => upstream.destroy());
    upstream.on("close", () => client.destroy());
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
  await db.runInBackground(sql`select 1`);
  return {
    db,
    link: () => {
      if (link === undefined) throw new Error("no connection was opened");
      return link;
    },
  };
}

/** The result of a statement, or "unreachable". */
async function ending<T>(statement: PromiseLike<T>): Promise<T | "unreachable"> {
  try {
    return await statement;
  } catch (error) {
    expect(classifyError(error)?.detail).toMatch(/cannot reach/);
    return "unreachable";
  }
}

describe("a broken connection to PostgreSQL never yields a result", () => {
  it("a statement sent between the error of the connection and its close does not count as done", async () => {
    const { db, link } = await openProxied();
    await db.runInBackground(sql`create table if not exists notes (note text)`);
    const statements: Promise<unknown>[] = [];
    const emit = Socket.prototype.emit;
    onTestFinished(() => {
      Socket.prototype.emit = emit;
    });
    // The service's end of the connection is the one whose peer is the proxy.
    const port = link().client.localPort;
    const isServiceEnd = (socket: Socket) =>
      socket !== link().client && socket.remotePort === undefined && port !== undefined;
    Socket.prototype.emit = function (this: Socket, name: string | symbol, ...rest: unknown[]): boolean {
      const hadListeners = Reflect.apply(emit, this, [name, ...rest]);
      if (name === "error" && statements.length === 0 && isServiceEnd(this)) {
        for (const note of ["first", "second"]) {
          statements.push(ending(db.runInBackground(sql`insert into notes values (${note})`)));
        }
      }
      return hadListeners;
    };
    link().client.resetAndDestroy();
    await expect.poll(() => statements.length, { timeout: 5_000 }).toBe(2);

    const ends = await Promise.all(statements);
    const stored = await db.runInBackground(sql`select note from notes`);
    expect(stored.length).toBe(ends.filter((end) => end !== "unreachable").length);
  });

  it("the rows of an incomplete result do not get into the next result", async () => {
    const { db, link } = await openProxied();
    const broken = link();
    // Forwards the bytes of PostgreSQL up to and including the first row, then closes.
    broken.forward = (bytes) => {
      const rowEnd = endOfFirstMessage(bytes, "D");
      broken.client.write(rowEnd === undefined ? bytes : bytes.subarray(0, rowEnd));
      if (rowEnd !== undefined) setTimeout(() => broken.client.destroy(), 50);
    };
    expect(await ending(db.runInBackground(sql`select 2 as number`))).toBe("unreachable");
    for (let attempt = 0; attempt < 5; attempt++) {
      expect([...(await db.runInBackground(sql`select 3 as number`))]).toEqual([{ number: 3 }]);
    }
  });
});

/** The offset at which the first message of this type ends. */
function endOfFirstMessage(bytes: Buffer, type: string): number | undefined {
  for (let at = 0; at + 5 <= bytes.length; ) {
    const end = at + 1 + bytes.readUInt32BE(at + 1);
    if (String.fromCharCode(bytes[at] ?? 0) === type) return end;
    at = end;
  }
  return undefined;
}
