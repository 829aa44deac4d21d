import { mkdtempSync, rmSync } from "node:fs";
import { createServer, type RequestListener } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Server, ServerCredentials, type sendUnaryData, status } from "@grpc/grpc-js";
import { describe, expect, inject, it, onTestFinished, vi } from "vitest";
import { openBench } from "../../../bench/bench.js";
import { toSvg } from "../../../bench/chart.js";
import { grpcRequest, openGrpcLoad } from "../../../bench/load/grpc.js";
import { openHttpLoad, postRequest } from "../../../bench/load/http.js";
import { openOpenLoop } from "../../../bench/load/open-loop.js";
import { readOptions } from "../../../bench/options.js";
import { withResults, withSummary } from "../../../bench/readme.js";
import { exitCodeOf, type Report, toJson, toText } from "../../../bench/report.js";
import type { Line } from "../../../bench/row.js";
import { capacityOf, workers } from "../../../bench/rows/workers.js";
import { rows } from "../../../bench/rows.js";
import { pairRatios, percentile, spreadOf } from "../../../bench/statistics.js";

describe("the command line", () => {
  it("accepts rows by name, and runs all if none is named", () => {
    expect(readOptions(["workers", "latency", "--quick"], rows)).toMatchObject({
      rows: [{ name: "workers" }, { name: "latency" }],
      quick: true,
    });
    expect(readOptions([], rows).rows).toEqual(rows);
  });

  it("rejects an unknown row, and lists the known names", () => {
    const stderr = vi.spyOn(process.stderr, "write").mockReturnValue(true);
    onTestFinished(() => stderr.mockRestore());
    expect(() => readOptions(["http-verfiy"], rows)).toThrow();
    for (const { name } of rows) expect(`${stderr.mock.calls}`).toContain(`  ${name} `);
  });

  it("does not write figures of a short run into the documents", () => {
    const stderr = vi.spyOn(process.stderr, "write").mockReturnValue(true);
    onTestFinished(() => stderr.mockRestore());
    expect(() => readOptions(["--write", "--quick"], rows)).toThrow("full run");
    expect(() => readOptions(["--write", "workers"], rows)).toThrow("full run");
  });
});

describe("the statistics", () => {
  it("the median is the middle value, or the mean of the two middle values", () => {
    expect(spreadOf([3, 10, 1])).toEqual({ median: 3, min: 1, max: 10 });
    expect(spreadOf([4, 1, 2, 100])).toEqual({ median: 3, min: 1, max: 100 });
  });

  it("ratios compare neighbouring rounds, so that a slow period that affects both cancels out", () => {
    expect(pairRatios([80, 8, 82], [100, 10, 100])).toEqual({ median: 0.8, min: 0.8, max: 0.82 });
    expect(() => pairRatios([1], [])).toThrow("pairs");
  });

  it("the 99th percentile is exceeded by one value in a hundred", () => {
    const values = Array.from({ length: 1_000 }, (_, index) => index);
    expect(percentile(values, 0.99)).toBe(990);
    expect(percentile([5], 0.99)).toBe(5);
  });

  it("two workers count as one if one of them does all the work", () => {
    const round = { callsPerSecond: 1_000, callsPerCpuSecond: 1_000, serverCores: 1, loadCores: 0.2 };
    expect(capacityOf({ ...round, busiestCores: 0.5 })).toBe(2_000);
    expect(capacityOf({ ...round, busiestCores: 1 })).toBe(1_000);
  });
});

describe("the report", () => {
  it("reports that all goals are reached", () => {
    const report = reportOf(lineOf(0.7, { atLeast: 0.7 }), lineOf(2, { atMost: 2 }), lineOf(0.1));
    expect(exitCodeOf(report)).toBe(0);
    expect(toText(report)).toContain("All goals are reached.");
    expect(JSON.parse(toJson(report)).shortcomings).toEqual([]);
  });

  it.each([
    ["too low", lineOf(0.69, { atLeast: 0.7 }), "0.69, not at least 0.7"],
    ["too high", lineOf(2.01, { atMost: 2 }), "2.01, not at most 2"],
    ["no value", lineOf(Number.NaN, { atLeast: 1 }), "–, not at least 1"],
  ])("marks a missed goal: %s", (_, line, expectedText) => {
    const report = reportOf(lineOf(1, { atLeast: 0.7 }), line);
    expect(exitCodeOf(report)).toBe(1);
    expect(toText(report)).toContain("MISSED");
    expect(toText(report)).toContain(expectedText);
  });

  it("a row that could not be measured fails the report", () => {
    const report = { ...reportOf(), results: [{ row: "broken", title: "broken", failure: "it broke" }] };
    expect(exitCodeOf(report)).toBe(1);
    expect(toText(report)).toContain("broken could not be measured: it broke");
  });

  it("replaces only the text between the markers of a document", () => {
    const mark = "<!-- bench: written by `npm run bench -- --write` -->";
    const text = withResults(`before\n${mark}\nold\n<!-- /bench -->\nafter\n`, reportOf(lineOf(0.5, { atLeast: 0.7 })));
    expect(text).toMatch(/^before\n<!--.*-->\n\| .*\*\*0\.50\*\* \(missed\).*<!-- \/bench -->\nafter\n$/s);
    expect(text).not.toContain("old");
    expect(() => withResults("no marks", reportOf())).toThrow("no markers");
  });

  it("is summarised in the README: the number of goals reached, and the missed ones", () => {
    const document = "<!-- bench: written by `npm run bench -- --write` -->\nold\n<!-- /bench -->\n";
    const summary = (...lines: Line[]) => withSummary(document, reportOf(...lines)).split("\n")[1];
    const reached = lineOf(2, { atMost: 2 });
    expect(summary(reached, lineOf(0.1))).toBe("On 2026-11-15, 1 of 1 goals were reached.");
    expect(summary(reached, lineOf(0.5, { atLeast: 0.7 }))).toBe(
      "On 2026-11-15, 1 of 2 goals were reached. Missed: a line (0.50, goal at least 0.7).",
    );
  });

  it("the SVG is well-formed, and has a text description", () => {
    const svg = toSvg(
      [{ ...lineOf(0.5, { atLeast: 0.7 }), title: "a < b & c" }, lineOf(99, { atLeast: 3 })],
      "caption",
    );
    expect(openElements(svg)).toEqual([]);
    expect(svg).toContain("<title");
    expect(svg).toContain("a &lt; b &amp; c: 0.50, goal at least 0.7");
    expect(svg).toContain("prefers-color-scheme: dark");
  });
});

describe("the load generators detect a wrong response", () => {
  const request = { bytes: postRequest("/", { key: "a" }, "caller"), expected: '"valid":true' };
  const right: RequestListener = (_request, response) => response.end(`{"valid":true,"text":"${"é".repeat(1_000)}"}`);

  /** The first responses are right, so that the test finds one wrong response among many. */
  const rightUntil = (count: number, wrong: RequestListener): RequestListener => {
    let calls = 0;
    return (request, response) => (++calls === count ? wrong : right)(request, response);
  };

  it("over HTTP, right responses are counted", async () => {
    const load = await openHttpLoad({ port: await serveHttp(right), connections: 3, next: () => request });
    onTestFinished(() => load.close());
    const { calls, seconds } = await load.run(0.2);
    expect(calls).toBeGreaterThan(10);
    expect(seconds).toBeGreaterThanOrEqual(0.19);
  });

  it.each<[string, RequestListener]>([
    ["with another status", (_request, response) => response.writeHead(500).end('{"valid":true}')],
    ["with another content", (_request, response) => response.end('{"valid":false}')],
    ["without a length", (_request, response) => response.writeHead(200, { "transfer-encoding": "chunked" }).end("x")],
    ["that never ends", (_request, response) => response.destroy()],
  ])("over HTTP, one %s", async (_, wrong) => {
    const port = await serveHttp(rightUntil(20, wrong));
    const load = await openHttpLoad({ port, connections: 3, next: () => request });
    onTestFinished(() => load.close());
    await expect(load.run(5)).rejects.toThrow(/expected 200|closed a connection/);
  });

  it("open loop: every call is made, and queueing time is part of its latency", async () => {
    const slow: RequestListener = (request, response) => void setTimeout(() => right(request, response), 20);
    const loop = await openOpenLoop({ port: await serveHttp(slow), connections: 2, next: () => request });
    onTestFinished(() => loop.close());
    const latencies = await loop.run(200, 0.2);
    expect(latencies).toHaveLength(40);
    expect(Math.min(...latencies)).toBeGreaterThanOrEqual(15);
    // Two connections can serve 100 calls a second: the last of 200 wait about as long as the round lasts.
    expect(Math.max(...latencies)).toBeGreaterThan(100);
  });

  it("open loop: a wrong response is detected too", async () => {
    const port = await serveHttp(rightUntil(20, (_request, response) => response.writeHead(503).end()));
    const loop = await openOpenLoop({ port, connections: 2, next: () => request });
    onTestFinished(() => loop.close());
    await expect(loop.run(500, 5)).rejects.toThrow("expected 200");
  });

  const rightResponse = Buffer.from("the right response");

  it("over gRPC, right responses are counted", async () => {
    const load = await openGrpc((_call, respond) => respond(null, rightResponse));
    expect((await load.run(0.2)).calls).toBeGreaterThan(0);
    expect((await load.run(0.1)).calls).toBeGreaterThan(0);
  });

  it.each<[string, (respond: sendUnaryData<Buffer>) => void]>([
    ["with another content", (respond) => respond(null, Buffer.from("the wrong response"))],
    ["that is too short", (respond) => respond(null, rightResponse.subarray(1))],
    ["that is too long", (respond) => respond(null, Buffer.concat([rightResponse, rightResponse]))],
    ["that is an error", (respond) => respond({ code: status.UNAVAILABLE, details: "out of order" })],
  ])("over gRPC, one %s", async (_, wrong) => {
    let calls = 0;
    const load = await openGrpc((_call, respond) => (++calls === 20 ? wrong(respond) : respond(null, rightResponse)));
    await expect(load.run(5)).rejects.toThrow(/expected|without its response/);
  });

  /** A gRPC server with one handler, under load. */
  async function openGrpc(handler: (call: unknown, respond: sendUnaryData<Buffer>) => void) {
    const server = new Server();
    const same = (bytes: Buffer) => bytes;
    server.register("/bench.Test/Ask", handler, same, same, "unary");
    const port = await new Promise<number>((resolve, reject) => {
      server.bindAsync("127.0.0.1:0", ServerCredentials.createInsecure(), (error, port) =>
        error ? reject(error) : resolve(port),
      );
    });
    onTestFinished(() => server.forceShutdown());
    const load = await openGrpcLoad({
      port,
      path: "/bench.Test/Ask",
      credential: "x".repeat(150), // longer than the first byte of an HPACK length can express
      connections: 2,
      streams: 3,
      next: () => grpcRequest(Buffer.from("a request"), rightResponse),
    });
    onTestFinished(() => load.close());
    return load;
  }
});

it("a row is measured with each server in its own process", async () => {
  const folder = mkdtempSync(join(tmpdir(), "latchkey-bench-"));
  const progress: string[] = [];
  const bench = openBench({
    quick: true,
    pace: { warmUpSeconds: 0.3, roundSeconds: 0.3, pairs: 1 },
    folder,
    backends: { databaseUrl: inject("databaseUrl"), redisUrl: inject("redisUrl") },
    progress: (text) => progress.push(text),
  });
  onTestFinished(async () => {
    await bench.close();
    rmSync(folder, { recursive: true, force: true });
  });
  const [line, raw] = await workers.measure(bench);
  expect(line.value.median).toBeGreaterThan(0);
  expect(raw?.sides.map(({ name }) => name)).toEqual(["WORKERS=2", "WORKERS=1"]);
  for (const { figures } of raw?.sides ?? []) {
    expect(figures["calls/s"]?.median).toBeGreaterThan(50);
    expect(figures["server, cores"]?.median).toBeGreaterThan(0);
  }
  expect(progress).toContain("pair 1 of 1");
});

function lineOf(value: number, goal?: Line["goal"]): Line {
  return {
    title: "a line",
    value: { median: value, min: value, max: value },
    ...(goal && { goal }),
    sides: [],
    notes: [],
  };
}

function reportOf(...lines: Line[]): Report {
  const machine = { date: "2026-11-15", cpu: "2 × core", memory: "1 GiB", system: "Linux", versions: { Node: "20" } };
  return { machine, quick: false, results: [{ row: "row", lines }] };
}

/** The elements that are opened and not closed. Throws on anything other than elements and plain text. */
function openElements(xml: string): string[] {
  const element = /<(\/?)(\w+)(?:\s+[\w:-]+="[^"<&]*")*(\/?)>/g;
  expect(xml.replace(element, "")).not.toMatch(/[<>]|&(?!(amp|lt|gt);)/);
  const open: string[] = [];
  for (const [, end, name = "", empty] of xml.matchAll(element)) {
    if (end) expect(open.pop()).toBe(name);
    else if (!empty) open.push(name);
  }
  return open;
}

async function serveHttp(listener: RequestListener): Promise<number> {
  const server = createServer((request, response) => {
    request.resume().once("end", () => listener(request, response));
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  onTestFinished(() => {
    server.closeAllConnections();
    server.close();
  });
  return (server.address() as AddressInfo).port;
}
