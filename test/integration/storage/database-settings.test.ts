import { afterAll, beforeAll, expect, inject, it } from "vitest";
import { openSql } from "../../../commands/open-sql.js";
import { createWorkspace, send } from "../../support/clients/http-requests.js";
import { callGrpc, callHttp } from "../../support/clients/timed-calls.js";
import { createDatabase, openTestApp, type TestApp } from "../../support/harness.js";

let database: Awaited<ReturnType<typeof createDatabase>>;
let app: TestApp;
let key: string;
beforeAll(async () => {
  database = await createDatabase(inject("template"));
  const sql = openSql(database.url, { max: 1 });
  for (const [setting, value] of [
    ["TimeZone", "'Europe/Berlin'"],
    ["DateStyle", "'SQL, DMY'"],
    ["bytea_output", "escape"],
    ["default_transaction_isolation", "serializable"],
  ]) {
    await sql.unsafe(`alter database "${new URL(database.url).pathname.slice(1)}" set ${setting} = ${value}`);
  }
  await sql.end();
  app = await openTestApp({ databaseUrl: database.url });
  key = (await createWorkspace(app.httpUrl)).key;
});
afterAll(async () => {
  await app?.close();
  await database.drop();
});

async function data(path: string, body: object, headers: Record<string, string> = {}) {
  const response = await send(app.httpUrl, path, {
    key,
    body: JSON.stringify(body),
    headers: { "content-type": "application/json", ...headers },
  });
  expect(response).toMatchObject({ status: 200 });
  return JSON.parse(response.text).data;
}

it("times are read as they were stored, whatever the time zone and the date format of the database", async () => {
  const { keyId } = await data("/v2/keys.createKey", {});
  // The fifth of December could be read as the twelfth of May. In 1850, the offset of Berlin had seconds.
  for (const date of ["2099-12-05", "1850-01-02", "0049-01-01"]) {
    const expires = Date.parse(`${date}T01:02:03.456Z`);
    expect(await data("/v2/keys.updateKey", { keyId, expires })).toMatchObject({ expires });
    expect(await data("/v2/keys.getKey", { keyId })).toMatchObject({ expires });
  }
});

it("a repeated request gets its stored response, whatever the format of bytes of the database", async () => {
  const headers = { "idempotency-key": "the same request" };
  const first = await data("/v2/keys.createKey", { name: "one" }, headers);
  expect(await data("/v2/keys.createKey", { name: "one" }, headers)).toEqual(first);
});

it("concurrent changes of one key all succeed, whatever the isolation level of the database", async () => {
  const { keyId } = await data("/v2/keys.createKey", {});
  const changes = Array.from({ length: 20 }, (_, index) =>
    [callHttp, callGrpc].map((call) => call(app, "updateKey", key, { keyId, enabled: index % 2 === 0 })),
  );
  const outcomes = (await Promise.all(changes.flat())).map(({ outcome }) => outcome);
  expect(new Set(outcomes)).toEqual(new Set(["OK"]));
});
