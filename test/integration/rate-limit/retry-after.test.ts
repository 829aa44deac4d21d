import { afterAll, beforeAll, expect, it } from "vitest";
import { createLatchkeyClient, isLatchkeyError } from "../../../src/client/client.js";
import { type BehindProxy, openBehindProxy } from "../../support/behind-proxy.js";
import { callers, protocolNames } from "./callers.js";

let away: BehindProxy;

beforeAll(async () => {
  away = await openBehindProxy();
  away.proxy.cut();
});
afterAll(() => away.close());

it.each(protocolNames)("a service that cannot serve now says over %s when to try again", async (protocol) => {
  const unavailable = { code: "application/service_unavailable" };
  const call = () => callers[protocol](away.app, away.key);
  await expect.poll(call, { timeout: 10_000 }).toMatchObject(unavailable);
  const { retryAfter, retryDelayMs } = await call();
  // gRPC has no such header; plain HTTP has no such detail.
  expect(retryAfter).toBe(protocol === "grpc" ? undefined : "1");
  expect(retryDelayMs).toBe(protocol === "http" ? undefined : 1_000);
});

it("and the client says it in milliseconds", async () => {
  const { keys } = createLatchkeyClient({ url: away.app.httpUrl, key: away.key });
  const error = await keys.listKeys({}).catch((error: unknown) => error);
  if (!isLatchkeyError(error, "service_unavailable")) return expect.fail(String(error));
  expect(error.retryAfterMs).toBe(1_000);
});
