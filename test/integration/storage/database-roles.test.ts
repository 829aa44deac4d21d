import { randomUUID } from "node:crypto";
import { readFileSync } from "node:fs";
import type postgres from "postgres";
import { afterAll, beforeAll, describe, expect, inject, it } from "vitest";
import { openSql } from "../../../commands/open-sql.js";
import { changeLeaseTime, migrateDatabase } from "../../../src/app.js";
import { UserError } from "../../../src/errors.js";
import { mintSecret } from "../../../src/keys/secret.js";
import { createLog } from "../../../src/observe/log.js";
import { succeed } from "../../support/calls.js";
import { send } from "../../support/clients/http-requests.js";
import { openTestApp, operatorKey } from "../../support/harness.js";
import { openHttpTour, requestsFor, rpcs } from "../../support/secrets-tour.js";

const page = readFileSync("docs/operations/database-roles.md", "utf8");

/** Roles belong to the whole server, so each run has names of its own. */
const suffix = randomUUID().replaceAll("-", "").slice(0, 12);
const owner = `latchkey_owner_${suffix}`;
const server = `latchkey_server_${suffix}`;
const database = `test_roles_${suffix}`;

/** The block of SQL after a marker of the page, with the names of this run. */
function documented(marker: string): string {
  const [, text] = new RegExp(`<!-- ${marker} -->\n\`\`\`sql\n([^\`]*)\`\`\``).exec(page) ?? [];
  if (text === undefined) throw new Error(`the page has no SQL after ${marker}`);
  return text
    .replaceAll("latchkey_owner", owner)
    .replaceAll("latchkey_server", server)
    .replace("database latchkey ", `database ${database} `);
}

const admin = openSql(inject("databaseUrl"), { max: 1, onnotice: () => {} });
const opened: postgres.Sql[] = [];

function urlOf(role: string, password: string, name = database): string {
  const url = new URL(inject("databaseUrl"));
  Object.assign(url, { username: role, password, pathname: `/${name}` });
  return url.href;
}

const ownerUrl = urlOf(owner, "change-this-1");
const serverUrl = urlOf(server, "change-this-2");

function sqlAs(url: string): postgres.Sql {
  const sql = openSql(url, { max: 1, onnotice: () => {} });
  opened.push(sql);
  return sql;
}

/** Opens a service as the role of servers. Returns it with its parsed log lines. */
async function openAsServer(options: Parameters<typeof openTestApp>[0] = {}) {
  const lines: { level: number; msg: string; migrations?: string[] }[] = [];
  const log = createLog("info", { destination: { write: (line: string) => void lines.push(JSON.parse(line)) } });
  const app = await openTestApp({ databaseUrl: serverUrl, redis: undefined, log, ...options });
  return { app, lines };
}

beforeAll(async () => {
  for (const statement of documented("superuser").split(";\n").filter(Boolean)) await admin.unsafe(statement);
  await sqlAs(ownerUrl).unsafe(documented("owner"));
});
afterAll(async () => {
  for (const sql of opened) await sql.end({ timeout: 1 });
  await admin.unsafe(`drop database ${database} with (force)`);
  await admin.unsafe(`drop role ${server}`);
  await admin.unsafe(`drop role ${owner}`);
  await admin.end();
});

// In this order: from an empty database over the first migration to a schema of a newer version.
describe.sequential("with the roles of docs/operations/database-roles.md", () => {
  const tooOld =
    /older than this version: it lacks 0001_schema\.sql.* role latchkey_server\w* of DATABASE_URL may not change it\. Run `latchkey migrate`/;

  it("a server on an empty database refuses to start, and names the missing migrations and the remedy", async () => {
    const error = await openTestApp({ databaseUrl: serverUrl }).catch((thrown: Error) => thrown);
    expect(error).toBeInstanceOf(UserError);
    expect((error as Error).message).toMatch(tooOld);
  });

  it("a migration as the server's role fails with the same sentence, and changes nothing", async () => {
    await expect(migrateDatabase(serverUrl)).rejects.toThrow(tooOld);
    expect(await sqlAs(ownerUrl)`select tablename from pg_tables where schemaname = 'public'`).toEqual([]);
  });

  it("a migration as the owner says what it has applied, and then that there is nothing to migrate", async () => {
    expect(await migrateDatabase(ownerUrl)).toMatch(/^Applied 0001_schema\.sql(, \S+\.sql)*\.$/);
    for (const url of [ownerUrl, serverUrl]) {
      expect(await migrateDatabase(url)).toBe("Nothing to migrate: the schema is current.");
    }
    await sqlAs(ownerUrl)`update cluster_state set lease_ms = 50, wait_ms = 50`; // so that tests need not wait
  });

  it("a server performs every operation and its background work, and PostgreSQL denies it nothing", async () => {
    const { app, lines } = await openAsServer({ sweepIntervalMs: 100, auditRetentionDays: 1 });
    const newWorkspace = () =>
      succeed<{ workspaceId: string; key: string }>(app.httpUrl, "workspaces.createWorkspace", operatorKey, {
        name: "acme",
      });
    const home = await newWorkspace();
    const { workspaceId: spareWorkspaceId } = await newWorkspace();
    const created = await succeed<{ keyId: string; key: string }>(app.httpUrl, "keys.createKey", home.key, {
      permissions: ["documents.read"],
    });
    const { apiId } = await succeed<{ apiId: string }>(app.httpUrl, "apis.createApi", home.key, { name: "tour" });
    const things = { ...created, apiId, imported: mintSecret("imported").plaintext, spareWorkspaceId };
    const tour = openHttpTour(app);
    const visited = new Set<string>();
    for (const [operation, body] of requestsFor(home.workspaceId, things)) {
      const credential = operation.startsWith("workspaces.") ? operatorKey : home.key;
      const response = await tour.call(operation, credential, body);
      expect(response, response.text).toMatchObject({ ok: true });
      visited.add(operation);
    }
    expect([...rpcs.keys()].filter((operation) => !visited.has(operation))).toEqual([]);
    // Rows that the sweep removes: it deletes in every table that has a retention.
    await sqlAs(serverUrl)`update audit_events set at = at - interval '2 days'`;
    await sqlAs(serverUrl)`update keys set deleted_at = deleted_at - interval '2 days' where deleted_at is not null`;
    const old = async () => sqlAs(serverUrl)`select from audit_events where at < now() - interval '1 day' limit 1`;
    await expect.poll(async () => (await old()).length, { timeout: 10_000 }).toBe(0);
    expect(await send(app.httpUrl, "/readyz", { method: "GET" })).toMatchObject({ status: 200 });
    await app.close(); // stores the counts and last-used times that are left
    expect(lines.filter(({ level }) => level >= 40)).toEqual([]);
    const used = await sqlAs(serverUrl)`select from keys where last_used_at is not null limit 1`;
    expect(used, "last-used times were stored").toHaveLength(1);
  }, 120_000);

  it("the lease and the cache secret can be changed as the server's role", async () => {
    await changeLeaseTime(serverUrl, 60);
    await sqlAs(serverUrl)`select rotate_cache_secret()`;
  });

  it("a server starts on a restored dump, whose foreign stamps it removes", async () => {
    await sqlAs(ownerUrl)`update cluster_state set forgotten_xid = '1000000000'`;
    const { app } = await openAsServer();
    await app.close();
    const [state] = await sqlAs(serverUrl)`select forgotten_xid::text as xid from cluster_state`;
    expect(state).toEqual({ xid: "0" });
  });

  it.each([
    "create table extra (id int)",
    "create function extra() returns int language sql as 'select 1'",
    "alter table keys add column extra int",
    "drop table keys",
    "drop trigger keys_removed on keys",
    "alter table keys disable trigger all",
    "truncate keys cascade",
    "create or replace function timeline() returns text language sql as 'select null'",
  ])("the server's role cannot: %s", async (statement) => {
    await expect(sqlAs(serverUrl).unsafe(statement)).rejects.toMatchObject({ code: "42501" });
  });

  it("a server whose role lacks a right refuses to start, and says which and what to do", async () => {
    const sql = sqlAs(ownerUrl);
    await sql.unsafe(`revoke select on migrations from ${server}`);
    const error = await openTestApp({ databaseUrl: serverUrl }).catch((thrown: Error) => thrown);
    await sql.unsafe(`grant select on migrations to ${server}`);
    expect(error).toBeInstanceOf(UserError);
    expect((error as Error).message).toMatch(
      /permission denied for table migrations.*docs\/operations\/database-roles\.md/,
    );
  });

  it("a server on a schema that lacks a migration refuses to start, and names the owner, who can apply it", async () => {
    const sql = sqlAs(ownerUrl);
    const records = await sql`delete from migrations returning *`;
    const error = await openTestApp({ databaseUrl: serverUrl }).catch((thrown: Error) => thrown);
    await sql`insert into migrations ${sql(records)}`;
    expect((error as Error).message).toContain("it lacks 0001_schema.sql");
    expect((error as Error).message).toContain(`Run \`latchkey migrate\` with the role ${owner}, which owns it.`);
  });

  it("a server on the schema of a newer version serves, and logs it; a migration says so", async () => {
    await sqlAs(ownerUrl)`insert into migrations values ('9999_later.sql', 'its')`;
    const { app, lines } = await openAsServer();
    expect(await send(app.httpUrl, "/readyz", { method: "GET" })).toMatchObject({ status: 200 });
    await app.close();
    const warning = {
      level: 40,
      msg: expect.stringMatching(/newer than this version/),
      migrations: ["9999_later.sql"],
    };
    expect(lines).toContainEqual(expect.objectContaining(warning));
    expect(await migrateDatabase(ownerUrl)).toBe(
      "Nothing to migrate: the schema is newer than this version. It has 9999_later.sql.",
    );
  });
});

it("the statements for an existing database give the role of servers what it needs", async () => {
  const existing = `${database}_existing`;
  await admin.unsafe(`create database ${existing} owner ${owner}`);
  try {
    const url = urlOf(owner, "change-this-1", existing);
    await migrateDatabase(url);
    const sql = openSql(url, { max: 1, onnotice: () => {} });
    await sql.unsafe(documented("existing")).finally(() => sql.end());
    const { app } = await openAsServer({ databaseUrl: urlOf(server, "change-this-2", existing) });
    await succeed(app.httpUrl, "workspaces.createWorkspace", operatorKey, { name: "acme" }).finally(() => app.close());
  } finally {
    await admin.unsafe(`drop database ${existing} with (force)`);
  }
});
