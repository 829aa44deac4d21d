import { createGrpcTransport } from "@connectrpc/connect-node";
import { pino } from "pino";
import type postgres from "postgres";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { openSql } from "../../../commands/open-sql.js";
import { createLatchkeyClient } from "../../../src/client/client.js";
import { createOutageLog } from "../../../src/storage/postgres/outage-log.js";
import { createWorkspace, expectFailure, expectSuccess, post } from "../../support/clients/http-requests.js";
import { createDatabase, openTestApp, type TestApp } from "../../support/harness.js";
import { readMetric } from "../../support/metrics.js";

let database: Awaited<ReturnType<typeof createDatabase>>;
let admin: postgres.Sql;
let sql: postgres.Sql;
let app: TestApp;
let key: string;
const role = `limited_${process.pid}`;
const lines: { msg: string; reason?: string }[] = [];
const log = pino({ level: "info" }, { write: (line: string) => void lines.push(JSON.parse(line)) });

/** A service whose role has no rights but on its own database, and a table that fails in the way that is asked for. */
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
  await sql`create table trouble (code text)`;
  await sql`grant select on trouble to public`;
  await sql`create function fail() returns trigger language plpgsql as $$
    declare asked text := (select code from trouble);
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

it("of trouble that lasts, the log says once that it began, however many calls fail", async () => {
  await sql`insert into trouble values ('53200')`;
  const answers = await Promise.all(Array.from({ length: 50 }, (_, number) => create(`many_${number}`)));
  await sql`delete from trouble`;
  expect(answers.map(({ status }) => status)).toEqual(Array(50).fill(503));
  const said = lines.filter(({ msg }) => msg.includes("is out of memory"));
  expect(said).toMatchObject([{ reason: "made up" }]);
});

describe("what is the matter with the database is told through both protocols, as unavailable", () => {
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
    await sql`insert into trouble values (${code})`;
    try {
      const answer = await create(`over_http_${code}`);
      expectFailure(answer, 503, "application/service_unavailable");
      expect(JSON.parse(answer.text).error.detail).toBe(`${sentence}. Retry after the delay in \`Retry-After\`.`);
      expect(answer.headers["retry-after"]).toBe("1");
      const transport = createGrpcTransport({ baseUrl: `http://${app.grpcAddress}` });
      const { identities } = createLatchkeyClient({ transport, key });
      await expect(identities.createIdentity({ externalId: `over_grpc_${code}` })).rejects.toMatchObject({
        code: "service_unavailable",
        message: `${sentence}. Retry after the delay in \`Retry-After\`.`,
      });
      expectSuccess(await post(app.httpUrl, "/v2/keys.verifyKey", key, { key }));
    } finally {
      await sql`delete from trouble`;
    }
    expectSuccess(await create(`afterwards_${code}`));
  });

  it("but a mistake of our own is not taken for that", async () => {
    await sql`insert into trouble values ('22012')`;
    expectFailure(await create("mistaken"), 500, "application/unexpected_error");
    await sql`delete from trouble`;
  });
});

it("when no connection is to be had, calls are told so, and served when there are some again", async () => {
  await admin.unsafe(`alter role ${role} connection limit 0`);
  await admin`select pg_terminate_backend(pid) from pg_stat_activity where usename = ${role}`;
  const told = async () => JSON.parse((await create("crowded")).text).error?.detail;
  await expect
    .poll(told, { timeout: 5_000 })
    .toBe("The service's database is out of connections. Retry after the delay in `Retry-After`.");
  expectFailure(await create("crowded"), 503, "application/service_unavailable");

  await admin.unsafe(`alter role ${role} connection limit -1`);
  const list = async () => (await post(app.httpUrl, "/v2/keys.listKeys", key, {})).status;
  await expect.poll(list, { timeout: 5_000 }).toBe(200);
  expectSuccess(await create("roomy"));
  await expect.poll(() => readMetric(app, "pool_connections", { state: "busy" })).toBe(0);
  const [row] = await admin`select count(*)::int from pg_stat_activity where usename = ${role}`;
  expect(row?.["count"]).toBeLessThanOrEqual(11);
});

it("of trouble that lasts, the log says once that it is over: when what had failed succeeds, and nothing has failed for a while", () => {
  const told: string[] = [];
  let now = 0;
  const write = (line: string) => void told.push(JSON.parse(line).msg);
  const troubles = createOutageLog(pino({ level: "info" }, { write }), () => now);
  const full = (query: string) => Object.assign(new Error("no room"), { code: "53100", query });
  troubles.succeeded("insert");
  troubles.failed(full("insert"));
  troubles.failed(full("update"));
  troubles.succeeded("insert"); // there was room for this one
  now += 6_000;
  troubles.succeeded("select"); // reading needs none
  expect(told).toHaveLength(1);
  troubles.succeeded("update");
  troubles.succeeded("update");
  expect(told.slice(1)).toEqual(["the database works again"]);
});

it("trouble with connecting is over when any statement succeeds, but not what else was the matter", () => {
  const told: string[] = [];
  let now = 0;
  const write = (line: string) => void told.push(JSON.parse(line).msg);
  const troubles = createOutageLog(pino({ level: "info" }, { write }), () => now);
  const crowded = Object.assign(new Error("too many connections"), { code: "53300" });
  troubles.failed(crowded);
  troubles.succeeded("select"); // on one of the connections that are left
  expect(told).toHaveLength(1);
  now += 6_000;
  troubles.succeeded("select");
  expect(told.slice(1)).toEqual(["the database works again"]);

  troubles.failed(crowded);
  troubles.failed(Object.assign(new Error("no room"), { code: "53100", query: "insert" }));
  now += 6_000;
  troubles.succeeded("select");
  expect(told.slice(3)).toEqual([]);
  troubles.succeeded("insert");
  expect(told.slice(3)).toEqual(["the database works again"]);
});
