import { afterAll, beforeAll, expect, it } from "vitest";
import { createProtobufClient, isLatchkeyError } from "../../../src/client/protobuf.js";
import { type BehindProxy, openBehindProxy } from "../../support/behind-proxy.js";
import { callers, protocolNames } from "../../support/clients/rate-limit-headers.js";

let service: BehindProxy;

beforeAll(async () => {
  service = await openBehindProxy();
  service.proxy.cut();
});
afterAll(() => service.close());

it.each(protocolNames)("an unavailable service returns a retry delay over %s", async (protocol) => {
  const unavailable = { code: "application/service_unavailable" };
  const call = () => callers[protocol](service.app, service.key);
  await expect.poll(call, { timeout: 10_000 }).toMatchObject(unavailable);
  const { retryAfter, retryDelayMs } = await call();
  // gRPC has no such header; plain HTTP has no such detail.
  expect(retryAfter).toBe(protocol === "grpc" ? undefined : "1");
  expect(retryDelayMs).toBe(protocol === "http" ? undefined : 1_000);
});

it("the client error has the retry delay of an unavailable service in milliseconds", async () => {
  const { keys } = createProtobufClient({ url: service.app.httpUrl, key: service.key });
  const error = await keys.listKeys({}).catch((error: unknown) => error);
  if (!isLatchkeyError(error, "service_unavailable")) return expect.fail(String(error));
  expect(error.retryAfterMs).toBe(1_000);
});
