import { existsSync } from "node:fs";
import { Redis } from "ioredis";
import { describe, expect, inject, onTestFinished, test } from "vitest";
import { openSql } from "../../commands/open-sql.js";
import { createDatabase } from "../support/harness.js";
import { needsCurl } from "../support/skip.js";
import { until } from "./processes.js";
import { call, deadPort, makePlace, type Place, paste, type Service, start, stop } from "./service.js";

const operatorKey = "operator-credential-of-the-start-tests";

describe("with DATABASE_URL", () => {
  test("and REDIS_URL, exactly those are used and nothing is started beside the service", async () => {
    const { place, service, databaseUrl } = await startWith({ REDIS_URL: inject("redisUrl") });
    expectNothingEmbedded(service, place);
    expect(service.stdout()).toMatch(/PostgreSQL +from DATABASE_URL/);
    expect(service.stdout()).toMatch(/Redis +from REDIS_URL/);
    expect(service.stdout()).toMatch(/Operator key +from OPERATOR_KEY/);
    expect(service.stdout(), "no secret of the configuration is shown").not.toContain(operatorKey);
    expect(service.stdout()).not.toContain(new URL(databaseUrl).password);

    // What is read is put into Redis once; before that, Redis must be in use.
    await until("Redis is in use", async () => {
      const answer = await (await fetch(`${service.httpUrl}/readyz`)).text();
      return /"redis":"in use"/.test(answer) || undefined;
    });
    const workspaceId = await expectToServe(service);
    expect(await workspacesIn(databaseUrl)).toEqual([workspaceId]);
    const redis = new Redis(inject("redisUrl"));
    onTestFinished(() => redis.disconnect());
    expect(await redis.keys(`*${workspaceId}*`), "the workspace's state is cached in that Redis").not.toEqual([]);
    expectNothingEmbedded(service, place);
    expect(await stop(service)).toMatchObject({ code: 0 });
  });

  test("alone, it works on Postgres alone", async () => {
    const { place, service, databaseUrl } = await startWith({});
    expectNothingEmbedded(service, place);
    expect(await workspacesIn(databaseUrl), "nothing is made that nobody asked for").toEqual([]);
    await expectToServe(service);
  });

  test("and a REDIS_URL that nobody listens on, it still serves and still stops", async () => {
    const { service } = await startWith({ REDIS_URL: `redis://127.0.0.1:${await deadPort()}` });
    await expectToServe(service);
    await until("it says so", () => /Redis is unavailable/.test(service.stderr()) || undefined);
    expect(await stop(service)).toMatchObject({ code: 0 });
  });

  test("and no OPERATOR_KEY, one is made and kept in DATA_DIR, and the printed command makes a workspace", async (ctx) => {
    needsCurl(ctx);
    const { place, service } = await startWith({ OPERATOR_KEY: undefined });
    const [command = "false # no command was printed", ...others] = service.commands;
    expect(others).toEqual([]);
    const { code, stdout, stderr } = await paste(command, place);
    expect(code, stderr).toBe(0);
    expect(JSON.parse(stdout).data).toMatchObject({ key: expect.stringMatching(/^lk_/) });
  });
});

test("with REDIS_URL alone, PostgreSQL is embedded and that Redis is used", async () => {
  const place = makePlace();
  const service = await start(place, { set: { REDIS_URL: inject("redisUrl"), OPERATOR_KEY: operatorKey } });
  expect(service.stdout()).toMatch(/PostgreSQL +embedded/);
  expect(service.stdout()).toMatch(/Redis +from REDIS_URL/);
  const redis = new Redis(inject("redisUrl"));
  onTestFinished(() => redis.disconnect());
  // Asked again: while the service is still connecting to Redis, it does not wait for it.
  await until("the state of a workspace is in that Redis", async () => {
    const workspaceId = await expectToServe(service);
    return (await redis.exists(`latchkey:ws:${workspaceId}`)) === 1 || undefined;
  });
});

async function startWith(set: Record<string, string | undefined>) {
  const database = await createDatabase();
  onTestFinished(() => database.drop());
  const place = makePlace();
  const service = await start(place, { set: { DATABASE_URL: database.url, OPERATOR_KEY: operatorKey, ...set } });
  return { place, service, databaseUrl: database.url };
}

/** The operator makes a workspace, and its key works. */
async function expectToServe(service: Service): Promise<string> {
  const created = await call(service, "/v2/workspaces.createWorkspace", operatorKey, { name: "mine" });
  expect(created).toMatchObject({ status: 200, data: { workspaceId: expect.any(String), key: expect.any(String) } });
  const { workspaceId, key } = created.data as { workspaceId: string; key: string };
  expect(await call(service, "/v1/keys.listKeys", key)).toMatchObject({ status: 200, data: [{ workspaceId }] });
  return workspaceId;
}

function expectNothingEmbedded(service: Service, place: Place): void {
  expect(service.family()).toEqual([]);
  expect(existsSync(place.dataDir), "nothing is kept").toBe(false);
}

async function workspacesIn(databaseUrl: string): Promise<string[]> {
  const sql = openSql(databaseUrl, { max: 1 });
  onTestFinished(() => sql.end());
  const rows = await sql<{ workspaceId: string }[]>`select workspace_id as "workspaceId" from workspaces`;
  return rows.map(({ workspaceId }) => workspaceId);
}
