import { afterAll, beforeAll, describe, expect, inject, it, onTestFinished } from "vitest";
import { openSql } from "../../../commands/open-sql.js";
import { createWorkspace } from "../../support/clients/http-requests.js";
import { callGrpc, callHttp } from "../../support/clients/timed-calls.js";
import { createDatabase, openTestApp, type TestApp } from "../../support/harness.js";
import { type OwnPostgres, openOwnPostgres } from "../../support/own-postgres.js";

describe("the service refuses to start if acknowledged changes could be lost, and names the setting to change:", () => {
  it.each([
    ["synchronous_commit", "off", "alter role … set synchronous_commit = on"],
    ["client_min_messages", "error", "alter role … set client_min_messages = notice"],
  ])("%s = %s, inherited from the database", async (setting, value, remedy) => {
    const { url, drop } = await createDatabase(inject("template"));
    onTestFinished(drop);
    const sql = openSql(url, { max: 1 });
    await sql.unsafe(`alter database "${new URL(url).pathname.slice(1)}" set ${setting} = ${value}`);
    await sql.end();
    const start = openTestApp({ databaseUrl: url });
    await expect(start).rejects.toMatchObject({
      name: "UserError",
      message: expect.stringMatching(`(?=.*${setting} = ${value})(?=.*${remedy})`),
    });
  });
});

describe("the running service answers as unavailable while acknowledged changes could be lost or missing:", () => {
  let own: OwnPostgres;
  let app: TestApp;
  let key: string;
  beforeAll(async () => {
    own = await openOwnPostgres();
    app = await openTestApp({ databaseUrl: own.url });
    key = (await createWorkspace(app.httpUrl)).key;
  });
  afterAll(async () => {
    await app?.close();
    await own?.close();
  });

  const outcomes = async () => {
    const answers = await Promise.all([callHttp, callGrpc].map((call) => call(app, "listKeys", key)));
    return answers.map(({ outcome }) => outcome);
  };

  it.each([
    ["synchronous_commit", "off"],
    ["client_min_messages", "error"],
    ["default_transaction_read_only", "on"],
  ])("%s = %s", async (setting, value) => {
    const sql = openSql(own.url, { max: 1, onnotice: () => {} });
    onTestFinished(() => sql.end({ timeout: 1 }));
    await expect.poll(outcomes, { timeout: 10_000 }).toEqual(["OK", "OK"]);
    await sql.unsafe(`alter system set ${setting} = ${value}`);
    await sql`select pg_reload_conf()`;
    await expect.poll(outcomes, { timeout: 10_000 }).toEqual(["UNAVAILABLE", "UNAVAILABLE"]);
    await sql.unsafe(`alter system reset ${setting}`);
    await sql`select pg_reload_conf()`;
    await expect.poll(outcomes, { timeout: 10_000 }).toEqual(["OK", "OK"]);
  });
});
