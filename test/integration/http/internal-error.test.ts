import { pino } from "pino";
import { expect, it } from "vitest";
import { createLog } from "../../../src/observe/log.js";
import { expectError, expectSuccess, post, send } from "../../support/clients/http-requests.js";
import { openFileService, openFileSql } from "../../support/file-service.js";

const logLines: string[] = [];
const log = createLog("info", { destination: { write: (line: string) => void logLines.push(line) } });

const { app, origin, key } = await openFileService({ log });
await openFileSql(app.databaseUrl)`drop table audit_events`;

/** The log line of this request. It is written after the response is sent, so this polls for it. */
async function loggedLine(requestId: unknown): Promise<unknown> {
  const find = () => logLines.map((line) => JSON.parse(line)).find((line) => line.requestId === requestId);
  await expect.poll(find, { timeout: 10_000 }).toBeDefined();
  return find();
}

it("an unexpected error returns a fixed detail to the caller, and its cause is logged under the request id", async () => {
  const response = await post(origin, "/v2/workspaces.listAuditEvents", key, {});
  const { detail } = expectError(response, 500, "application/unexpected_error");
  expect(detail).toBe("An internal error occurred. The cause is in the service's log under this request id.");
  expect(response.text).not.toMatch(/relation|audit_events|42P01|postgres|stack/i);

  const line = await loggedLine(response.headers["x-request-id"]);
  expect(line).toMatchObject({
    level: pino.levels.values["error"],
    code: "application/unexpected_error",
    err: { message: expect.stringContaining('relation "audit_events" does not exist'), stack: expect.any(String) },
  });
});

it("the log contains no credential and no part of the body, even when a call fails unexpectedly", async () => {
  const meta = { note: "confidential-of-the-caller" };
  const response = await post(origin, "/v2/identities.createIdentity", key, { externalId: "somebody-private", meta });
  expectError(response, 500, "application/unexpected_error");
  await loggedLine(response.headers["x-request-id"]);
  const logged = logLines.join("");
  expect(logged).not.toContain(key);
  expect(logged).not.toContain("confidential-of-the-caller");
  expect(logged).not.toContain("somebody-private");
});

it("a client error is logged with its code, without a cause", async () => {
  const response = await post(origin, "/v1/keys.listKeys", key, { surprise: 1 });
  const line = await loggedLine(response.headers["x-request-id"]);
  expect(line).toMatchObject({ level: pino.levels.values["info"], code: "application/invalid_input" });
  expect(line).not.toHaveProperty("err");
});

it("after an unexpected error the server still serves other calls", async () => {
  await post(origin, "/v2/workspaces.listAuditEvents", key, {});
  expectSuccess(await send(origin, "/v2/liveness", { method: "GET" }));
  expectSuccess(await post(origin, "/v1/keys.listKeys", key, {}));
});
