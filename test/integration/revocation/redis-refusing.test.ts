import { Redis } from "ioredis";
import { expect, inject, it, onTestFinished } from "vitest";
import { createLog } from "../../../src/observe/log.js";
import { createWorkspace, expectSuccess, send } from "../../support/clients/http-requests.js";
import { listKeys } from "../../support/clients/verify-calls.js";
import { openTestApp, redisAt } from "../../support/harness.js";

it("a Redis that accepts connections but refuses every command is bypassed, and that is logged", async () => {
  const admin = new Redis(inject("redisUrl"));
  const user = `connect-only${Date.now()}`;
  await admin.call("ACL", "SETUSER", user, "on", ">secret", "+@connection", "+info");
  const url = new URL(inject("redisUrl"));
  url.username = user;
  url.password = "secret";
  const lines: string[] = [];
  const log = createLog("info", { destination: { write: (line: string) => void lines.push(JSON.parse(line).msg) } });
  const app = await openTestApp({ redis: redisAt(url.href), log });
  onTestFinished(async () => {
    await app.close();
    await admin.call("ACL", "DELUSER", user);
    admin.disconnect();
  });
  const redisLines = async () => {
    // New keys, so that every call reads Redis.
    const { key } = await createWorkspace(app.httpUrl);
    expectSuccess(await listKeys(app, key));
    return lines.filter((line) => line.startsWith("Redis")).join("\n");
  };
  await expect.poll(redisLines, { timeout: 10_000, interval: 20 }).toContain("Redis is unavailable");
  expect(expectSuccess(await send(app.httpUrl, "/readyz", { method: "GET" }))).toMatchObject({ redis: "out of use" });
});
