import { pino } from "pino";
import { afterAll, beforeAll, expect, it } from "vitest";
import { openSql } from "../../../commands/open-sql.js";
import { ask, createWorkspace, expectFailure, expectSuccess, post } from "../../support/clients/http-requests.js";
import { openTestApp, type TestApp } from "../../support/harness.js";

const written: string[] = [];
const log = pino({ level: "info", base: null }, { write: (line: string) => void written.push(line) });

let app: TestApp;
let origin: string;
let key: string;

beforeAll(async () => {
  app = await openTestApp({ log });
  origin = app.httpUrl;
  key = (await createWorkspace(origin)).key;
  const sql = openSql(app.databaseUrl, { max: 1, onnotice: () => {} });
  await sql`drop table audit_events`;
  await sql.end();
});
afterAll(() => app.close());

/** The line of this request in the log, once it is there: it is written when the answer has left. */
async function loggedLine(requestId: unknown): Promise<unknown> {
  const find = () => written.map((line) => JSON.parse(line)).find((line) => line.requestId === requestId);
  await expect.poll(find, { timeout: 10_000 }).toBeDefined();
  return find();
}

it("an unexpected error is a fixed sentence for the caller, and its cause is in the log under the request id", async () => {
  const answer = await post(origin, "/v2/workspaces.listAuditEvents", key, {});
  const { detail } = expectFailure(answer, 500, "application/unexpected_error");
  expect(detail).toBe("An internal error occurred. The cause is in the service's log under this request id.");
  expect(answer.text).not.toMatch(/relation|audit_events|42P01|postgres|stack/i);

  const line = await loggedLine(answer.headers["x-request-id"]);
  expect(line).toMatchObject({
    level: pino.levels.values["error"],
    code: "application/unexpected_error",
    err: { message: expect.stringContaining('relation "audit_events" does not exist'), stack: expect.any(String) },
  });
});

it("the log holds no credential and nothing of the body, even when a call fails unexpectedly", async () => {
  const meta = { note: "confidential-of-the-caller" };
  const answer = await post(origin, "/v2/identities.createIdentity", key, { externalId: "somebody-private", meta });
  expectFailure(answer, 500, "application/unexpected_error");
  await loggedLine(answer.headers["x-request-id"]);
  const all = written.join("");
  expect(all).not.toContain(key);
  expect(all).not.toContain("confidential-of-the-caller");
  expect(all).not.toContain("somebody-private");
});

it("what the caller did wrong is logged with its code, without a cause", async () => {
  const answer = await post(origin, "/v1/keys.listKeys", key, { surprise: 1 });
  const line = await loggedLine(answer.headers["x-request-id"]);
  expect(line).toMatchObject({ level: pino.levels.values["info"], code: "application/invalid_input" });
  expect(line).not.toHaveProperty("err");
});

it("after an unexpected error the server still serves what works", async () => {
  await post(origin, "/v2/workspaces.listAuditEvents", key, {});
  expectSuccess(await ask(origin, "/v2/liveness", { method: "GET" }));
  expectSuccess(await post(origin, "/v1/keys.listKeys", key, {}));
});
