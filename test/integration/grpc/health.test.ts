import { once } from "node:events";
import { connect } from "node:net";
import { Code, createClient } from "@connectrpc/connect";
import { createGrpcTransport } from "@connectrpc/connect-node";
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from "vitest";
import { Health, HealthCheckResponse_ServingStatus as Serving } from "../../../gen/grpc/health/v1/health_pb.js";
import { type BehindProxy, openBehindProxy } from "../../support/behind-proxy.js";
import { ask, expectFailure } from "../../support/clients/http-requests.js";
import { openTestApp, type TestApp } from "../../support/harness.js";

const services = ["latchkey.v1.KeysService", "latchkey.v1.IdentitiesService", "latchkey.v1.WorkspacesService"];

/** A client that has no credential. */
function healthOf({ grpcAddress }: TestApp) {
  const { check, list, watch } = createClient(Health, createGrpcTransport({ baseUrl: `http://${grpcAddress}` }));
  return {
    check: async (service = "") => Serving[(await check({ service })).status],
    list: async () => Object.entries((await list({})).statuses).map(([name, { status }]) => [name, Serving[status]]),
    /** Watches until the stream ends or the test has finished. */
    watch(service = "") {
      const told: (string | undefined)[] = [];
      const stopped = new AbortController();
      onTestFinished(() => stopped.abort());
      const ended = (async () => {
        for await (const { status } of watch({ service }, { signal: stopped.signal })) told.push(Serving[status]);
      })();
      ended.catch(() => {});
      return { told, ended };
    },
  };
}

describe("grpc.health.v1", () => {
  let setting: BehindProxy;
  beforeAll(async () => {
    setting = await openBehindProxy();
  });
  afterAll(() => setting.close());

  it.each(["", ...services])("the service '%s' is SERVING", async (service) => {
    const health = healthOf(setting.app);
    expect(await health.check(service)).toBe("SERVING");
    const { told } = health.watch(service);
    await expect.poll(() => told).toEqual(["SERVING"]);
  });

  it("all services are listed, with the server as a whole", async () => {
    const listed = await healthOf(setting.app).list();
    expect(listed.sort()).toEqual(["", ...services].sort().map((name) => [name, "SERVING"]));
  });

  it("a service that is not here is NOT_FOUND, and to who watches it SERVICE_UNKNOWN", async () => {
    const health = healthOf(setting.app);
    await expect(health.check("latchkey.v2.KeysService")).rejects.toMatchObject({ code: Code.NotFound });
    const { told } = health.watch("latchkey.v2.KeysService");
    await expect.poll(() => told).toEqual(["SERVICE_UNKNOWN"]);
  });

  it("while Postgres is away it is NOT_SERVING, and who watches is told of each change, once", async () => {
    const { app, proxy } = setting;
    const health = healthOf(app);
    const { told } = health.watch();
    await expect.poll(() => told).toEqual(["SERVING"]);

    proxy.cut();
    await expect.poll(() => told, { timeout: 10_000 }).toEqual(["SERVING", "NOT_SERVING"]);
    expect(await health.check()).toBe("NOT_SERVING");
    expect(await health.check(services[0])).toBe("NOT_SERVING");

    proxy.resume();
    await expect.poll(() => told, { timeout: 10_000 }).toEqual(["SERVING", "NOT_SERVING", "SERVING"]);
    expect(await health.check()).toBe("SERVING");
  });
});

describe("a service that is told to stop", () => {
  it("says so before its ports close, and goes on serving until then", async () => {
    const app = await openTestApp({ shutdownDelayMs: 1_500 });
    const health = healthOf(app);
    expect(await health.check()).toBe("SERVING");

    const closing = app.close();
    expect(await healthOf(app).check(), "on a new connection").toBe("NOT_SERVING");
    expect(await health.check()).toBe("NOT_SERVING");
    expectFailure(await ask(app.httpUrl, "/readyz", { method: "GET" }), 503, "application/service_unavailable");
    expect((await ask(app.httpUrl, "/v2/liveness", { method: "GET" })).status).toBe(200);

    await closing;
    for (const url of [app.httpUrl, `http://${app.grpcAddress}`]) await expect(connected(url)).rejects.toThrow();
  });

  it("tells who watches, lets them go, and is not held up by them", async () => {
    const app = await openTestApp();
    const known = healthOf(app).watch(services[0]);
    const unknown = healthOf(app).watch("unknown");
    await expect.poll(() => [known.told, unknown.told]).toEqual([["SERVING"], ["SERVICE_UNKNOWN"]]);

    await app.close();
    await known.ended;
    await unknown.ended;
    expect(known.told).toEqual(["SERVING", "NOT_SERVING"]);
    expect(unknown.told).toEqual(["SERVICE_UNKNOWN"]);
  });
});

async function connected(url: string): Promise<void> {
  const { hostname, port } = new URL(url);
  const socket = connect(Number(port), hostname);
  await once(socket, "connect");
  socket.destroy();
}
