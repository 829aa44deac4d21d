import { afterAll, beforeAll, expect, inject, it } from "vitest";
import { openSql } from "../../../commands/open-sql.js";
import { createWorkspace, expectSuccess, post } from "../../support/clients/http-requests.js";
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

const data = async (path: string, body: object) =>
  expectSuccess(await post(app.httpUrl, path, key, body)) as { keyId: string };

it("times are read as they were stored, whatever the time zone and the date format of the database", async () => {
  const { keyId } = await data("/v2/keys.createKey", {});
  // The fifth of December could be read as the twelfth of May. In 1850, the offset of Berlin had seconds.
  for (const date of ["2099-12-05", "1850-01-02", "0049-01-01"]) {
    const expires = Date.parse(`${date}T01:02:03.456Z`);
    expect(await data("/v2/keys.updateKey", { keyId, expires })).toMatchObject({ expires });
    expect(await data("/v2/keys.getKey", { keyId })).toMatchObject({ expires });
  }
});
