import { createGrpcTransport } from "@connectrpc/connect-node";
import type postgres from "postgres";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { openSql } from "../../../commands/open-sql.js";
import { createProtobufClient } from "../../../src/client/protobuf.js";
import { createLog } from "../../../src/observe/log.js";
import { observeOutages } from "../../../src/storage/postgres/database-outage.js";
import { createWorkspace, expectError, expectSuccess, post } from "../../support/clients/http-requests.js";
import { createDatabase, openTestApp, type TestApp } from "../../support/harness.js";
import { readMetric } from "../../support/metrics.js";

let database: Awaited<ReturnType<typeof createDatabase>>;
let admin: postgres.Sql;
let sql: postgres.Sql;
let app: TestApp;
let key: string;
const role = `limited_${process.pid}`;
const lines: { msg: string; reason?: string }[] = [];
const log = createLog("info", { destination: { write: (line: string) => void lines.push(JSON.parse(line)) } });

/**
 * A service whose role has rights only on its own database. Inserts into `identities` fail with the SQLSTATE in the
 * table `failures`, if there is one.
 */
beforeAll(async () => {
  database = await createDatabase();
  admin = openSql(database.url, { max: 1, onnotice: () => {} });
  await admin.unsafe(`create role ${role} login password 'limited'`);
  await admin.unsafe(`grant all on schema public to ${role}`);
  const url = new URL(database.url);
  url.username = role;
  url.password = "limited";
  app = await openTestApp({ databaseUrl: url.href, metricsPort: 0, log });
  key = (await createWorkspace(app.httpUrl)).key;
  sql = openSql(database.url, { max: 1, onnotice: () => {} });
  await sql`create table failures (code text)`;
  await sql`grant select on failures to public`;
  await sql`create function fail() returns trigger language plpgsql as $$
    declare asked text := (select code from failures);
    begin
      if asked is not null then raise exception 'made up' using errcode = asked; end if;
      return new;
    end $$`;
  await sql`create trigger fail before insert on identities for each row execute function fail()`;
});
afterAll(async () => {
  await app?.close();
  await sql?.end({ timeout: 1 });
  await admin.unsafe(`drop owned by ${role}; drop role ${role}`);
  await admin.end({ timeout: 1 });
  await database.drop();
});

const create = (externalId: string) => post(app.httpUrl, "/v2/identities.createIdentity", key, { externalId });

it("an outage is logged once when it begins, however many calls fail", async () => {
  await sql`insert into failures values ('53200')`;
  const responses = await Promise.all(Array.from({ length: 50 }, (_, number) => create(`many_${number}`)));
  await sql`delete from failures`;
  expect(responses.map(({ status }) => status)).toEqual(Array(50).fill(503));
  const logged = lines.filter(({ msg }) => msg.includes("is out of memory"));
  expect(logged).toMatchObject([{ reason: "made up" }]);
});

describe("errors of PostgreSQL are returned as unavailable, with their cause, over both protocols", () => {
  it.each([
    ["53100", "The service's database is out of disk space"],
    ["53200", "The service's database is out of memory"],
    ["53400", "The service's database is short of resources"],
    ["58030", "The service's database cannot use its files"],
    ["42501", "The service's database denies it access"],
    ["25006", "The service's database is read-only"],
    ["57014", "The service's database is too slow at the moment"],
    ["57P01", "The service cannot reach its database"],
  ])("%s: %s", async (code, sentence) => {
    await sql`insert into failures values (${code})`;
    try {
      const response = await create(`over_http_${code}`);
      expectError(response, 503, "application/service_unavailable");
      expect(JSON.parse(response.text).error.detail).toBe(`${sentence}. Retry after the delay in \`Retry-After\`.`);
      expect(response.headers["retry-after"]).toBe("1");
      const transport = createGrpcTransport({ baseUrl: `http://${app.grpcAddress}` });
      const { identities } = createProtobufClient({ transport, key });
      await expect(identities.createIdentity({ externalId: `over_grpc_${code}` })).rejects.toMatchObject({
        code: "service_unavailable",
        message: `${sentence}. Retry after the delay in \`Retry-After\`.`,
      });
      expectSuccess(await post(app.httpUrl, "/v2/keys.verifyKey", key, { key }));
    } finally {
      await sql`delete from failures`;
    }
    expectSuccess(await create(`afterwards_${code}`));
  });

  it("an error in a statement of the service is an unexpected error, not an outage", async () => {
    await sql`insert into failures values ('22012')`;
    expectError(await create("unexpected"), 500, "application/unexpected_error");
    await sql`delete from failures`;
  });
});

it("without available connections, calls fail with that cause, and are served once there are some again", async () => {
  await admin.unsafe(`alter role ${role} connection limit 0`);
  await admin`select pg_terminate_backend(pid) from pg_stat_activity where usename = ${role}`;
  const detail = async () => JSON.parse((await create("crowded")).text).error?.detail;
  await expect
    .poll(detail, { timeout: 5_000 })
    .toBe("The service's database is out of connections. Retry after the delay in `Retry-After`.");
  expectError(await create("crowded"), 503, "application/service_unavailable");

  await admin.unsafe(`alter role ${role} connection limit -1`);
  const list = async () => (await post(app.httpUrl, "/v2/keys.listKeys", key, {})).status;
  await expect.poll(list, { timeout: 5_000 }).toBe(200);
  expectSuccess(await create("recovered"));
  await expect.poll(() => readMetric(app, "pool_connections", { state: "busy" })).toBe(0);
  const [row] = await admin`select count(*)::int from pg_stat_activity where usename = ${role}`;
  expect(row?.["count"]).toBeLessThanOrEqual(11);
});

// The end is logged when the failed statement succeeds, and none has failed for a while.
it("an outage is logged once when it ends", () => {
  const logged: string[] = [];
  let now = 0;
  const write = (line: string) => void logged.push(JSON.parse(line).msg);
  const outages = observeOutages(createLog("info", { destination: { write } }), () => now);
  const full = (query: string) => Object.assign(new Error("disk full"), { code: "53100", query });
  outages.succeeded("insert");
  outages.failed(full("insert"));
  outages.failed(full("update"));
  outages.succeeded("insert"); // there was still space for this one
  now += 6_000;
  outages.succeeded("select"); // reading needs no space
  expect(logged).toHaveLength(1);
  outages.succeeded("update");
  outages.succeeded("update");
  expect(logged.slice(1)).toEqual(["the database works again"]);
});

it("an outage of connections ends when any statement succeeds; other outages do not", () => {
  const logged: string[] = [];
  let now = 0;
  const write = (line: string) => void logged.push(JSON.parse(line).msg);
  const outages = observeOutages(createLog("info", { destination: { write } }), () => now);
  const crowded = Object.assign(new Error("too many connections"), { code: "53300" });
  outages.failed(crowded);
  outages.succeeded("select"); // on one of the remaining connections
  expect(logged).toHaveLength(1);
  now += 6_000;
  outages.succeeded("select");
  expect(logged.slice(1)).toEqual(["the database works again"]);

  outages.failed(crowded);
  outages.failed(Object.assign(new Error("disk full"), { code: "53100", query: "insert" }));
  now += 6_000;
  outages.succeeded("select");
  expect(logged.slice(3)).toEqual([]);
  outages.succeeded("insert");
  expect(logged.slice(3)).toEqual(["the database works again"]);
});
