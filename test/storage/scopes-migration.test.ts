import { readdirSync, readFileSync } from "node:fs";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { connectPostgres, type Sql } from "../../src/storage/postgres/connection.js";
import { migrate } from "../../src/storage/postgres/migrate.js";
import { createDatabase } from "../harness.js";

const folder = new URL("../../src/storage/postgres/migrations/", import.meta.url);

let database: Awaited<ReturnType<typeof createDatabase>>;
let sql: Sql;

/** Keys as they were stored before there were scopes, and the scopes that each is to get. */
const keys: [keyId: string, permissions: string[], scopes: string[]][] = [
  ["everything", ["*"], ["*"]],
  ["wildcards", ["keys.*", "identities.*", "audit.*"], ["keys.*", "identities.*", "audit.*"]],
  ["in the order given", ["keys.verify", "a.b", "keys.read"], ["keys.verify", "keys.read"]],
  ["the application's alone", ["documents.read", "keys", "keys.read.all", "keys.read.*", "Keys.read"], []],
  ["none", [], []],
];

beforeAll(async () => {
  database = await createDatabase();
  sql = connectPostgres(database.url);
  await migrate(sql);
  // As the database was before: no column, and the functions and triggers of then.
  await sql.begin(async (transaction) => {
    await transaction`drop schema public cascade`;
    await transaction`create schema public`;
    for (const file of readdirSync(folder).sort()) {
      if (file < "0008") await transaction.unsafe(readFileSync(new URL(file, folder), "utf8"));
    }
    await transaction`insert into workspaces (workspace_id, name, created_at) values ('ws', 'acme', now())`;
    for (const [keyId, permissions] of keys) {
      await transaction`
        insert into keys (key_id, workspace_id, hash, start, enabled, permissions, created_at, updated_at)
        values (${keyId}, 'ws', sha256(${keyId}::bytea), 'lk', true, ${transaction.typed(permissions, 1009)}, now(), now())`;
    }
    await transaction.unsafe(readFileSync(new URL("0008_scopes.sql", folder), "utf8"));
  });
});
afterAll(async () => {
  await sql.end({ timeout: 5 });
  await database.drop();
});

describe("a database from before scopes", () => {
  it.each(keys)("keeps the rights and the permissions of a key with %s", async (keyId, permissions, scopes) => {
    expect(await sql`select scopes, permissions from keys where key_id = ${keyId}`).toEqual([{ scopes, permissions }]);
  });

  it("follows changes of scopes from then on", async () => {
    await sql`update keys set scopes = '{}' where key_id = 'everything'`;
    const [row] = await sql`
      select changed_epoch = (select value from epoch) as stamped, changed_epoch > 0 as counted, told(keys) as told
      from keys where key_id = 'everything'`;
    expect(row).toMatchObject({ stamped: true, counted: true, told: { scopes: [], permissions: ["*"] } });
  });
});
