import { once } from "node:events";
import { readFileSync } from "node:fs";
import { connect } from "node:net";
import { setTimeout as sleep } from "node:timers/promises";
import { Registry } from "prom-client";
import { afterAll, describe, expect, it, onTestFinished } from "vitest";
import { openSql } from "../../../commands/open-sql.js";
import { openMetricsServer } from "../../../src/http/metrics-server.js";
import { createLog } from "../../../src/observe/log.js";
import { defaultLimits } from "../../../src/overload/limits.js";
import { openProtocols } from "../../support/clients/all.js";
import { post, send } from "../../support/clients/http-requests.js";
import { openFileService } from "../../support/file-service.js";
import { openTestApp, operatorKey } from "../../support/harness.js";
import { parseSamples, readMetricsText, readSamples, type Sample, total } from "../../support/metric-samples.js";

const { app, ...home } = await openFileService({ metricsPort: 0 });
const protocols = openProtocols(app);
afterAll(() => protocols.close());

const calls = "latchkey_calls_total";
const duration = "latchkey_call_duration_seconds";
const listKeys = "/latchkey.v1.KeysService/ListKeys";

/** Returns by how much the metrics grew during `work`. */
async function growth(work: () => Promise<unknown>) {
  const before = await readSamples(app);
  await work();
  const after = await readSamples(app);
  return (name: string, labels: Record<string, string>) => total(after, name, labels) - total(before, name, labels);
}

describe.each(["http", "grpc", "connect"] as const)("calls over %s", (protocol) => {
  it("are counted by method and result code", async () => {
    const grown = await growth(async () => {
      for (let call = 0; call < 3; call++) await protocols[protocol].call("listKeys", home.key, {});
      await protocols[protocol].call("listKeys", home.key, { limit: 0 });
      await protocols[protocol].call("listKeys", [], {});
      await protocols[protocol].call("getWorkspace", operatorKey, { workspaceId: home.workspaceId });
      // The Connect protocol counts a call after its response is sent, so the client may return earlier.
      await expect.poll(async () => total(await readSamples(app), calls, { protocol })).toBeGreaterThanOrEqual(6);
    });
    expect(grown(calls, { protocol, method: listKeys, code: "ok" })).toBe(3);
    expect(grown(calls, { protocol, method: listKeys, code: "application/invalid_input" })).toBe(1);
    expect(grown(calls, { protocol, method: listKeys, code: "authentication/missing" })).toBe(1);
    expect(grown(calls, { protocol, method: "/latchkey.v1.WorkspacesService/GetWorkspace" })).toBe(1);
  });

  it("are in a duration histogram: cumulative buckets, a sum and a count", async () => {
    await protocols[protocol].call("listKeys", home.key, {});
    const samples = await readSamples(app);
    const labels = { protocol, method: listKeys };
    const buckets = samples.filter((sample) => sample.name === `${duration}_bucket` && isOf(sample, labels));
    const bounds = buckets.map((bucket) => Number(bucket.labels["le"]?.replace("+Inf", "Infinity")));
    const counts = buckets.map(({ value }) => value);
    expect(bounds.length).toBeGreaterThan(10);
    expect(bounds, "in order, and the last one contains all").toEqual([...new Set(bounds)].sort((a, b) => a - b));
    expect(bounds.at(-1)).toBe(Number.POSITIVE_INFINITY);
    expect(counts).toEqual([...counts].sort((a, b) => a - b));
    expect(counts.at(-1)).toBe(total(samples, `${duration}_count`, labels));
    expect(counts.at(-1)).toBe(total(samples, calls, labels));
    expect(total(samples, `${duration}_sum`, labels)).toBeGreaterThan(0);
  });
});

it("a slow call is in the histogram's buckets of slow calls, and in the sum", async () => {
  const labels = { protocol: "http", method: "/latchkey.v1.WorkspacesService/ListAuditEvents" };
  const grown = await growth(() =>
    withAuditLocked(app.databaseUrl, 1, async (release) => {
      await expect.poll(busy).toBe(1);
      await sleep(300);
      await release();
    }),
  );
  expect(grown(`${duration}_count`, labels)).toBe(1);
  expect(grown(`${duration}_bucket`, { ...labels, le: "0.25" })).toBe(0);
  expect(grown(`${duration}_sum`, labels)).toBeGreaterThan(0.3);
});

it("requests that are no RPC have the label `other`, so that clients cannot create labels", async () => {
  const paths = ["/livez", "/some/where", "/latchkey.v1.KeysService/Made-up", "/v2/keys.getKey/made-up?made=up"];
  const grown = await growth(() => Promise.all(paths.map((path) => send(app.httpUrl, path, { method: "GET" }))));
  expect(grown(calls, { protocol: "http", method: "other" })).toBe(4);
  expect(grown(calls, { method: "other", code: "application/route_not_found" })).toBe(3);
  const labels = (await readSamples(app)).flatMap((sample) => Object.values(sample.labels));
  expect(labels.filter((value) => /made|where|livez/i.test(value))).toEqual([]);
});

it("pool connections in use are busy, and statements without a free one wait in the acquire queue", async () => {
  const read = async () => {
    const samples = await readSamples(app);
    const state = (state: string) => total(samples, "latchkey_pool_connections", { state });
    const waiting = (name: string) => total(samples, "latchkey_pool_waiting_statements", { class: name });
    return [state("busy"), state("free"), waiting("operator"), waiting("ordinary")];
  };
  await expect.poll(read).toEqual([0, 10, 0, 0]);
  await withAuditLocked(app.databaseUrl, 6, async (release) => {
    await expect.poll(read).toEqual([3, 7, 3, 0]);
    await release();
  });
  await expect.poll(read).toEqual([0, 10, 0, 0]);
});

describe("process metrics", () => {
  it("include the event-loop lag", async () => {
    await readSamples(app); // resets the lag
    await sleep(50); // the first measurement after that has none before it to compare with
    for (const until = performance.now() + 200; performance.now() < until; );
    await sleep(50); // the next measurement records the lag
    const samples = await readSamples(app);
    expect(total(samples, "nodejs_eventloop_lag_max_seconds")).toBeGreaterThan(0.15);
    expect(total(samples, "nodejs_eventloop_lag_p99_seconds")).toBeGreaterThan(0);
  });

  it("include memory, CPU time and open files, once for all applications in the process", async () => {
    const other = await openTestApp({ metricsPort: 0 });
    const text = await readMetricsText(other).finally(() => other.close());
    const samples = parseSamples(text);
    for (const name of ["process_resident_memory_bytes", "process_cpu_seconds_total", "nodejs_heap_size_used_bytes"]) {
      expect(samples.filter((sample) => sample.name === name)).toEqual([
        { name, labels: {}, value: expect.any(Number) },
      ]);
      expect(total(samples, name)).toBeGreaterThan(0);
    }
  });
});

describe("the metrics port", () => {
  it("serves /metrics in the Prometheus format, with any query", async () => {
    const response = await fetch(`${app.metricsUrl}?debug=true`);
    expect(response.headers.get("content-type")).toMatch(/^text\/plain; version=0\.0\.4/);
    expect(parseSamples(await response.text()).length).toBeGreaterThan(20);
  });

  it.each([
    ["/livez", { status: "alive" }],
    ["/readyz", { status: "ready", lease: "valid", redis: expect.stringMatching(/use$/) }],
    ["/readyz?verbose", { status: "ready", lease: "valid", redis: expect.stringMatching(/use$/) }],
  ])("serves the probe %s, for probers without a client certificate", async (path, data) => {
    const response = await fetch(new URL(path, app.metricsUrl));
    expect(response.status).toBe(200);
    expect(await response.json()).toEqual({ meta: { requestId: expect.stringMatching(/^req_/) }, data });
  });

  it("serves no other path", async () => {
    for (const path of ["/", "/v1/keys.listKeys", "/toString", "/metrics/", "/__proto__"]) {
      expect((await fetch(new URL(path, app.metricsUrl))).status).toBe(404);
    }
  });

  it("reports during shutdown that the service is not ready, and logs it, while the process is still alive", async () => {
    const lines: { level: number; msg: string; reason?: string }[] = [];
    const log = createLog("info", { destination: { write: (line: string) => void lines.push(JSON.parse(line)) } });
    const stopping = await openTestApp({ metricsPort: 0, shutdownDelayMs: 1_000, log });
    const closed = stopping.close();
    const probe = (path: string) => fetch(new URL(path, stopping.metricsUrl));
    await expect.poll(async () => (await probe("/readyz")).status).toBe(503);
    expect((await probe("/livez")).status).toBe(200);
    const reason = expect.stringContaining("shutting down");
    expect(lines).toContainEqual(
      expect.objectContaining({ level: 30, msg: expect.stringMatching(/not ready/), reason }),
    );
    await closed;
  });

  it("has an address of its own", async () => {
    const elsewhere = await openTestApp({ metricsHost: "127.0.0.2", metricsPort: 0 });
    onTestFinished(() => elsewhere.close());
    expect(elsewhere.metricsUrl).toMatch(/^http:\/\/127\.0\.0\.2:/);
    expect((await fetch(elsewhere.metricsUrl ?? "")).status).toBe(200);
    const { port } = new URL(elsewhere.metricsUrl ?? "");
    await expect(fetch(`http://127.0.0.1:${port}/metrics`)).rejects.toThrow();
  });

  it("that cannot be opened is reported with METRICS_HOST and METRICS_PORT", async () => {
    // 192.0.2.0/24 is reserved for documentation: no machine has such an address.
    const message = /192\.0\.2\.1.*Set METRICS_HOST or METRICS_PORT/;
    await expect(openTestApp({ metricsHost: "192.0.2.1", metricsPort: 0 })).rejects.toThrow(message);
  });

  it("is separate: the HTTP port does not serve /metrics", async () => {
    expect((await send(app.httpUrl, "/metrics", { method: "GET" })).status).toBe(404);
  });
});

function isOf(sample: Sample, labels: Readonly<Record<string, string>>): boolean {
  return Object.entries(labels).every(([label, value]) => sample.labels[label] === value);
}

async function busy(): Promise<number> {
  return total(await readSamples(app), "latchkey_pool_connections", { state: "busy" });
}

/** Sends calls that wait for a table lock, and runs `work`, which releases the lock. All calls must succeed. */
async function withAuditLocked(url: string, count: number, work: (release: () => Promise<unknown>) => Promise<void>) {
  const sql = openSql(url, { max: 1, onnotice: () => {} });
  let release = () => {};
  const released = new Promise<void>((resolve) => {
    release = resolve;
  });
  const locked = new Promise<void>((resolve, reject) => {
    sql
      .begin(async (transaction) => {
        await transaction`lock table audit_events in access exclusive mode`;
        resolve();
        await released;
      })
      .catch(reject);
  });
  await locked;
  const responses = Promise.all(
    Array.from({ length: count }, () => post(app.httpUrl, "/v2/workspaces.listAuditEvents", operatorKey, {})),
  );
  try {
    await work(() => {
      release();
      return responses;
    });
    expect((await responses).map(({ status }) => status)).toEqual(Array(count).fill(200));
  } finally {
    release();
    await sql.end();
  }
}

it("a failed read of the metrics is answered with 500 and logged, and the next request reads them again", async () => {
  const lines: { level: number; msg: string }[] = [];
  const log = createLog("info", { destination: { write: (line: string) => void lines.push(JSON.parse(line)) } });
  let failing = true;
  const read = async () => {
    if (failing) throw new Error("a worker is gone");
    return new Registry();
  };
  const server = await openMetricsServer(
    { metrics: read, readiness: async () => ({}) },
    "127.0.0.1",
    0,
    log,
    defaultLimits,
  );
  try {
    expect(await fetch(server.url)).toMatchObject({ status: 500 });
    expect(lines).toMatchObject([{ level: 50, msg: "cannot read the metrics", err: { message: "a worker is gone" } }]);
    failing = false;
    expect(await fetch(server.url)).toMatchObject({ status: 200 });
  } finally {
    server.close();
  }
});

describe("the metrics port limits its connections", () => {
  /** Starts a service with short timeouts. Returns a function that sends bytes to its metrics port until it closes. */
  async function openLimited() {
    const limited = await openTestApp({ metricsPort: 0, limits: { headersTimeoutMs: 300, maxHeaderBytes: 2_000 } });
    onTestFinished(() => limited.close());
    const { hostname, port } = new URL(limited.metricsUrl ?? "");
    return async function exchange(bytes: string): Promise<string> {
      const socket = connect(Number(port), hostname);
      onTestFinished(() => void socket.destroy());
      socket.on("error", () => {});
      socket.write(bytes);
      const chunks: Buffer[] = [];
      socket.on("data", (chunk) => chunks.push(chunk));
      await once(socket, "close");
      return Buffer.concat(chunks).toString();
    };
  }

  const get = "GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n";

  it.each([
    ["the headers are incomplete at their timeout", "GET /metrics HTTP/1.1\r\nHost: a\r\n", / 408 /],
    ["the headers are too large", `GET /metrics HTTP/1.1\r\nHost: a\r\nx-a: ${"x".repeat(4_000)}\r\n\r\n`, / 431 /],
    ["the response is read", get, / 200 /],
  ])("a connection is closed when %s", async (_what, bytes, status) => {
    const exchange = await openLimited();
    expect((await exchange(bytes)).split("\r\n")[0]).toMatch(status);
  });

  it("no more than one of several pipelined requests is served over HTTP/1.0, too", async () => {
    let reads = 0;
    const metrics = async () => {
      reads += 1;
      return new Registry();
    };
    const sources = { metrics, readiness: async () => ({}) };
    const server = await openMetricsServer(sources, "127.0.0.1", 0, createLog("silent"), defaultLimits);
    onTestFinished(() => server.close());
    const { hostname, port } = new URL(server.url);
    const socket = connect(Number(port), hostname).on("error", () => {});
    socket.end("GET /metrics HTTP/1.0\r\nConnection: keep-alive\r\n\r\n".repeat(1_000));
    await once(socket.resume(), "close");
    expect(reads).toBe(1);
  });

  it("a client has a limited time to read the response, even if it reads some of it now and then", async () => {
    const text = "x".repeat(64 * 2 ** 20); // more than the buffers of both sockets
    const metrics = async () => Object.assign(new Registry(), { metrics: async () => text });
    const sources = { metrics, readiness: async () => ({}) };
    const limits = { ...defaultLimits, headersTimeoutMs: 1_500, requestTimeoutMs: 1_500 };
    const server = await openMetricsServer(sources, "127.0.0.1", 0, createLog("silent"), limits);
    onTestFinished(() => server.close());
    const { hostname, port } = new URL(server.url);
    const socket = connect(Number(port), hostname).on("error", () => {});
    onTestFinished(() => void socket.destroy());
    socket.write(get);
    let received = 0;
    socket.on("data", (chunk) => {
      received += chunk.length;
      socket.pause();
      setTimeout(() => socket.resume(), 20);
    });
    await once(socket, "close");
    expect(received).toBeLessThan(text.length);
  });

  it("only the first of several pipelined requests is served", async () => {
    const exchange = await openLimited();
    expect((await exchange(get.repeat(20))).match(/^# HELP latchkey_calls_total/gm)).toHaveLength(1);
  });

  it("only a few connections can be open, and idle ones do not keep probes out", async () => {
    const limited = await openTestApp({ metricsPort: 0 });
    onTestFinished(() => limited.close());
    const { hostname, port } = new URL(limited.metricsUrl ?? "");
    const sockets = Array.from({ length: 100 }, () => connect(Number(port), hostname).on("error", () => {}));
    onTestFinished(() => sockets.forEach((socket) => void socket.destroy()));
    await expect.poll(() => sockets.filter(({ closed }) => closed).length, { timeout: 10_000 }).toBeGreaterThan(50);
    expect(sockets.filter(({ closed }) => !closed).length).toBeGreaterThan(10);
    for (let probes = 0; probes < 3; probes++) {
      expect(await fetch(new URL("/livez", limited.metricsUrl))).toMatchObject({ status: 200 });
    }
  });
});

it.each([
  [undefined, "unknown"],
  ["0123abc", "0123abc"],
])("build_info names the version, Node and the commit %s", async (buildCommit, commit) => {
  const { version } = JSON.parse(readFileSync("package.json", "utf8"));
  const built = await openTestApp({ metricsPort: 0, buildCommit });
  const samples = await readSamples(built).finally(() => built.close());
  expect(samples.filter(({ name }) => name === "latchkey_build_info")).toEqual([
    { name: "latchkey_build_info", labels: { version, node_version: process.version, commit }, value: 1 },
  ]);
});
