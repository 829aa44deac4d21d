import { once } from "node:events";
import { connect } from "node:net";
import { Code, createClient } from "@connectrpc/connect";
import { createGrpcTransport } from "@connectrpc/connect-node";
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from "vitest";
import { Health, HealthCheckResponse_ServingStatus as Serving } from "../../../gen/grpc/health/v1/health_pb.js";
import { type BehindProxy, openBehindProxy } from "../../support/behind-proxy.js";
import { expectError, send } from "../../support/clients/http-requests.js";
import { openTestApp, type TestApp } from "../../support/harness.js";

const services = [
  "KeysService",
  "IdentitiesService",
  "ApisService",
  "PermissionsService",
  "RateLimitsService",
  "WorkspacesService",
  "VerifierService",
].map((name) => `latchkey.v1.${name}`);

/** A health client without a credential. */
function healthOf({ grpcAddress }: TestApp) {
  const { check, list, watch } = createClient(Health, createGrpcTransport({ baseUrl: `http://${grpcAddress}` }));
  return {
    check: async (service = "") => Serving[(await check({ service })).status],
    list: async () => Object.entries((await list({})).statuses).map(([name, { status }]) => [name, Serving[status]]),
    /** Watches until the stream ends or the test has finished. */
    watch(service = "") {
      const received: (string | undefined)[] = [];
      const aborter = new AbortController();
      onTestFinished(() => aborter.abort());
      const ended = (async () => {
        for await (const { status } of watch({ service }, { signal: aborter.signal })) received.push(Serving[status]);
      })();
      ended.catch(() => {});
      return { received, ended };
    },
  };
}

describe("grpc.health.v1", () => {
  let proxied: BehindProxy;
  beforeAll(async () => {
    proxied = await openBehindProxy();
  });
  afterAll(() => proxied.close());

  it.each(["", ...services])("Check and Watch report SERVING for the service '%s'", async (service) => {
    const health = healthOf(proxied.app);
    expect(await health.check(service)).toBe("SERVING");
    const { received } = health.watch(service);
    await expect.poll(() => received).toEqual(["SERVING"]);
  });

  it("List returns all services and the server as a whole", async () => {
    const listed = await healthOf(proxied.app).list();
    expect(listed.sort()).toEqual(["", ...services].sort().map((name) => [name, "SERVING"]));
  });

  it("for an unknown service, Check returns NOT_FOUND and Watch sends SERVICE_UNKNOWN", async () => {
    const health = healthOf(proxied.app);
    await expect(health.check("latchkey.v2.KeysService")).rejects.toMatchObject({ code: Code.NotFound });
    const { received } = health.watch("latchkey.v2.KeysService");
    await expect.poll(() => received).toEqual(["SERVICE_UNKNOWN"]);
  });

  it("reports NOT_SERVING while PostgreSQL is unreachable, and Watch sends each change once", async () => {
    const { app, proxy } = proxied;
    const health = healthOf(app);
    const { received } = health.watch();
    await expect.poll(() => received).toEqual(["SERVING"]);

    proxy.cut();
    await expect.poll(() => received, { timeout: 10_000 }).toEqual(["SERVING", "NOT_SERVING"]);
    expect(await health.check()).toBe("NOT_SERVING");
    expect(await health.check(services[0])).toBe("NOT_SERVING");

    proxy.resume();
    await expect.poll(() => received, { timeout: 10_000 }).toEqual(["SERVING", "NOT_SERVING", "SERVING"]);
    expect(await health.check()).toBe("SERVING");
  });
});

describe("graceful shutdown", () => {
  it("reports NOT_SERVING before the ports close, and serves calls until then", async () => {
    const app = await openTestApp({ shutdownDelayMs: 1_500 });
    const health = healthOf(app);
    expect(await health.check()).toBe("SERVING");

    const closing = app.close();
    expect(await healthOf(app).check(), "on a new connection").toBe("NOT_SERVING");
    expect(await health.check()).toBe("NOT_SERVING");
    expectError(await send(app.httpUrl, "/readyz", { method: "GET" }), 503, "application/service_unavailable");
    expect((await send(app.httpUrl, "/v2/liveness", { method: "GET" })).status).toBe(200);

    await closing;
    for (const url of [app.httpUrl, `http://${app.grpcAddress}`]) await expect(connectTo(url)).rejects.toThrow();
  });

  it("sends NOT_SERVING to health watchers, ends their streams, and is not delayed by them", async () => {
    const app = await openTestApp();
    const known = healthOf(app).watch(services[0]);
    const unknown = healthOf(app).watch("unknown");
    await expect.poll(() => [known.received, unknown.received]).toEqual([["SERVING"], ["SERVICE_UNKNOWN"]]);

    await app.close();
    await known.ended;
    await unknown.ended;
    expect(known.received).toEqual(["SERVING", "NOT_SERVING"]);
    expect(unknown.received).toEqual(["SERVICE_UNKNOWN"]);
  });
});

async function connectTo(url: string): Promise<void> {
  const { hostname, port } = new URL(url);
  const socket = connect(Number(port), hostname);
  await once(socket, "connect");
  socket.destroy();
}
