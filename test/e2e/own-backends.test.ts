import { existsSync } from "node:fs";
import { Redis } from "ioredis";
import { describe, expect, inject, onTestFinished, test } from "vitest";
import { openSql } from "../../commands/open-sql.js";
import { createDatabase } from "../support/harness.js";
import { needsCurl } from "../support/skip.js";
import { until } from "./processes.js";
import {
  call,
  expectUserError,
  launch,
  makeSandbox,
  paste,
  type Sandbox,
  type Service,
  start,
  stop,
  unusedPort,
  waitForExit,
} from "./service.js";

const operatorKey = "operator-credential-of-the-start-tests";

describe("with DATABASE_URL", () => {
  test("and REDIS_URL, exactly those are used and no embedded backend is started", async () => {
    const { sandbox, service, databaseUrl } = await startWith({ REDIS_URL: inject("redisUrl") });
    expectNothingEmbedded(service, sandbox);
    expect(service.stdout()).toMatch(/PostgreSQL +from DATABASE_URL/);
    expect(service.stdout()).toMatch(/Redis +from REDIS_URL/);
    expect(service.stdout()).toMatch(/Operator key +from OPERATOR_KEY/);
    expect(service.stdout(), "no secret of the configuration is printed").not.toContain(operatorKey);
    expect(service.stdout()).not.toContain(new URL(databaseUrl).password);

    // A value is written to Redis only when it is first read, so Redis must be in use before.
    await until("Redis is in use", async () => {
      const body = await (await fetch(`${service.httpUrl}/readyz`)).text();
      return /"redis":"in use"/.test(body) || undefined;
    });
    const workspaceId = await expectToServe(service);
    expect(await workspacesIn(databaseUrl)).toEqual([workspaceId]);
    const redis = new Redis(inject("redisUrl"));
    onTestFinished(() => redis.disconnect());
    expect(await redis.keys(`*${workspaceId}*`), "the workspace's state is cached in that Redis").not.toEqual([]);
    expectNothingEmbedded(service, sandbox);
    expect(await stop(service)).toMatchObject({ code: 0 });
  });

  test("alone, the service works with PostgreSQL only", async () => {
    const { sandbox, service, databaseUrl } = await startWith({});
    expectNothingEmbedded(service, sandbox);
    expect(await workspacesIn(databaseUrl), "no first workspace is created").toEqual([]);
    await expectToServe(service);
  });

  test("and a REDIS_URL that refuses connections, the service still serves and still stops", async () => {
    const { service } = await startWith({ REDIS_URL: `redis://127.0.0.1:${await unusedPort()}` });
    await expectToServe(service);
    await until("the outage is logged", () => /Redis is unavailable/.test(service.stderr()) || undefined);
    expect(await stop(service)).toMatchObject({ code: 0 });
  });

  test("and no OPERATOR_KEY, the start fails and says why: each process would create another one", async () => {
    const database = await createDatabase();
    onTestFinished(() => database.drop());
    const sandbox = makeSandbox();
    const failure = await waitForExit(launch(sandbox, { set: { DATABASE_URL: database.url } }));
    expectUserError(failure, "DATABASE_URL needs an OPERATOR_KEY", `OPERATOR_KEY_FILE=${sandbox.dataDir}/operator.key`);
    expect(existsSync(sandbox.dataDir), "nothing is stored").toBe(false);
  });

  test("the printed command creates a workspace", async (ctx) => {
    needsCurl(ctx);
    const { sandbox, service } = await startWith({});
    const [command = "false # no command was printed", ...others] = service.commands;
    expect(others).toEqual([]);
    const { code, stdout, stderr } = await paste(`OPERATOR_KEY=${operatorKey}; ${command}`, sandbox);
    expect(code, stderr).toBe(0);
    expect(JSON.parse(stdout).data).toMatchObject({ key: expect.stringMatching(/^lk_/) });
  });
});

test("with REDIS_URL alone, PostgreSQL is embedded and that Redis is used", async () => {
  const sandbox = makeSandbox();
  const service = await start(sandbox, { set: { REDIS_URL: inject("redisUrl"), OPERATOR_KEY: operatorKey } });
  expect(service.stdout()).toMatch(/PostgreSQL +embedded/);
  expect(service.stdout()).toMatch(/Redis +from REDIS_URL/);
  const redis = new Redis(inject("redisUrl"));
  onTestFinished(() => redis.disconnect());
  // Repeated, because the service does not wait for Redis while it is still connecting.
  await until("the state of a workspace is in that Redis", async () => {
    const workspaceId = await expectToServe(service);
    return (await redis.exists(`latchkey:ws:${workspaceId}`)) === 1 || undefined;
  });
});

async function startWith(set: Record<string, string | undefined>) {
  const database = await createDatabase();
  onTestFinished(() => database.drop());
  const sandbox = makeSandbox();
  const service = await start(sandbox, { set: { DATABASE_URL: database.url, OPERATOR_KEY: operatorKey, ...set } });
  return { sandbox, service, databaseUrl: database.url };
}

/** The operator creates a workspace, and its key works. */
async function expectToServe(service: Service): Promise<string> {
  const created = await call(service, "/v2/workspaces.createWorkspace", operatorKey, { name: "mine" });
  expect(created).toMatchObject({ status: 200, data: { workspaceId: expect.any(String), key: expect.any(String) } });
  const { workspaceId, key } = created.data as { workspaceId: string; key: string };
  expect(await call(service, "/v1/keys.listKeys", key)).toMatchObject({ status: 200, data: [{ workspaceId }] });
  return workspaceId;
}

function expectNothingEmbedded(service: Service, sandbox: Sandbox): void {
  expect(service.descendants()).toEqual([]);
  expect(existsSync(sandbox.dataDir), "nothing is stored").toBe(false);
}

async function workspacesIn(databaseUrl: string): Promise<string[]> {
  const sql = openSql(databaseUrl, { max: 1 });
  onTestFinished(() => sql.end());
  const rows = await sql<{ workspaceId: string }[]>`select workspace_id as "workspaceId" from workspaces`;
  return rows.map(({ workspaceId }) => workspaceId);
}
