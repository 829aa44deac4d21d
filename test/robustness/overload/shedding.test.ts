import { once } from "node:events";
import { connect } from "node:http2";
import { connect as openSocket, type Socket } from "node:net";
import { fromBinary } from "@bufbuild/protobuf";
import { anyUnpack } from "@bufbuild/protobuf/wkt";
import { Code, ConnectError, type Transport } from "@connectrpc/connect";
import { createConnectTransport, createGrpcTransport, createGrpcWebTransport } from "@connectrpc/connect-node";
import { Client, credentials, Metadata, type ServiceError, status } from "@grpc/grpc-js";
import { pino } from "pino";
import { afterAll, beforeAll, beforeEach, describe, expect, it, onTestFinished } from "vitest";
import { ErrorInfoSchema } from "../../../gen/google/rpc/error_details_pb.js";
import { StatusSchema } from "../../../gen/google/rpc/status_pb.js";
import { Health, HealthCheckResponse_ServingStatus as Serving } from "../../../gen/grpc/health/v1/health_pb.js";
import { KeysService } from "../../../gen/latchkey/v1/keys_service_pb.js";
import { ask, createWorkspace, expectFailure, expectSuccess } from "../../support/clients/http-requests.js";
import { openTestApp, type TestApp } from "../../support/harness.js";
import { readSamples, total } from "../../support/metric-samples.js";
import { callHeaders, grpcStatusOf } from "./bare-grpc.js";

/** A service whose process has no time, when it is said so. */
let app: TestApp;
let busy = false;
let key: string;
const lines: { msg: string; bottleneck?: string; code?: string }[] = [];

beforeAll(async () => {
  app = await openTestApp({
    metricsPort: 0,
    guard: { accepts: () => !busy },
    log: pino({ level: "info" }, { write: (line) => lines.push(JSON.parse(line)) }),
  });
  key = (await createWorkspace(app.httpUrl)).key;
});
afterAll(() => app.close());
beforeEach(() => {
  busy = true;
  return () => {
    busy = false;
  };
});

describe("a call that the process has no time for", () => {
  it("is answered with 503, the envelope and Retry-After over HTTP; the connection can be used again", async () => {
    const answer = await ask(app.httpUrl, "/v1/keys.listKeys", { key });
    const { detail } = expectFailure(answer, 503, "application/service_unavailable");
    expect(detail).toContain("did nothing of this");
    expect(answer.headers["retry-after"]).toMatch(/^\d+$/);

    const body = { method: "POST", headers: { authorization: `Bearer ${key}`, "content-type": "application/json" } };
    const first = await fetch(`${app.httpUrl}/v1/keys.listKeys`, { ...body, body: "{}" });
    expect([first.status, first.headers.get("connection")]).toEqual([503, "keep-alive"]);
    await first.arrayBuffer();
    busy = false;
    expectSuccess(await ask(app.httpUrl, "/v1/keys.listKeys", { key }));
  });

  it("is answered without a body if it is HEAD, and the next answer on its connection is its own", async () => {
    const socket = openSocket(Number(new URL(app.httpUrl).port), "127.0.0.1").setEncoding("latin1");
    onTestFinished(() => void socket.destroy());
    const ask = (method: string) => socket.write(`${method} /v1/keys.listKeys HTTP/1.1\r\nhost: a\r\n\r\n`);
    let came = "";
    socket.on("data", (text: string) => {
      came += text;
    });
    ask("HEAD");
    await expect.poll(() => came).toMatch(/^HTTP\/1\.1 503 .*\r\n\r\n$/s);
    const first = came.length;
    ask("GET");
    await expect.poll(() => came.slice(first)).toMatch(/^HTTP\/1\.1 503 .*\r\n\r\n\{.*\}$/s);
  });

  it("says nothing of the caller, who was not looked at", async () => {
    const answers = await Promise.all(
      [undefined, "nonsense", key].map((key) => ask(app.httpUrl, "/v1/keys.listKeys", { ...(key && { key }) })),
    );
    const same = answers.map(({ text }) => text.replace(/req_\w+/, ""));
    expect(new Set(same).size).toBe(1);
  });

  it.each(["Connect", "gRPC-Web", "gRPC, by connect-node"])(
    "is UNAVAILABLE over %s, with its details",
    async (protocol) => {
      const error = await failureOf(transports()[protocol] as Transport);
      expect(error.code).toBe(Code.Unavailable);
      const [info] = error.findDetails(ErrorInfoSchema);
      expect(info).toMatchObject({ reason: "SERVICE_UNAVAILABLE", domain: "latchkey" });
      expect(info?.metadata["requestId"]).toMatch(/^req_\w{26}$/);
      expect(error.metadata.get("x-request-id")).toBe(info?.metadata["requestId"]);
    },
  );

  it("is UNAVAILABLE to grpc-js, each with an id of its own", async () => {
    const client = new Client(app.grpcAddress, credentials.createInsecure());
    const errors = await Promise.all([1, 2, 3].map(() => failureOfGrpcJs(client)));
    client.close();
    expect(errors.map(({ code }) => code)).toEqual(Array(3).fill(status.UNAVAILABLE));
    const ids = errors.map(({ metadata }) => metadata.get("x-request-id")[0]);
    expect(new Set(ids).size).toBe(3);
    const details = errors.map(({ metadata }) => {
      const bytes = metadata.get("grpc-status-details-bin")[0] as Buffer;
      const [first] = fromBinary(StatusSchema, bytes).details;
      return first && anyUnpack(first, ErrorInfoSchema)?.metadata["requestId"];
    });
    expect(details).toEqual(ids);
  });

  it.each(["/grpc.reflection.v1.ServerReflection/ServerReflectionInfo", "/nonsense"])(
    "is UNAVAILABLE whatever is asked for: %s",
    async (path) => {
      const session = connect(`http://${app.grpcAddress}`);
      const stream = session.request(callHeaders(path, key));
      expect(await grpcStatusOf(stream.end())).toBe(status.UNAVAILABLE);
      session.close();
    },
  );

  it("is counted, and has no line in the log; but when it began has", async () => {
    const before = await shedSoFar();
    const calls = lines.filter(({ msg }) => msg === "call").length;
    for (let call = 0; call < 3; call++) await ask(app.httpUrl, "/v1/keys.listKeys", { key });
    await failureOf(transports()["Connect"] as Transport);
    expect((await shedSoFar()) - before).toBe(4);
    expect(lines.filter(({ msg }) => msg === "call")).toHaveLength(calls);
    const begun = lines.filter(({ msg, bottleneck }) => msg.startsWith("more is asked") && bottleneck === "event_loop");
    expect(begun.length).toBeGreaterThan(0);
    expect(begun.length).toBeLessThan(await shedSoFar());
  });
});

it("while the service stops, a refusal is the last answer on its connection, which is closed", async () => {
  const stopping = await openTestApp({ guard: { accepts: () => !busy }, lingerMs: 60_000 });
  const clients = await Promise.all(
    [
      "POST /v1/keys.listKeys HTTP/1.1",
      "POST /latchkey.v1.KeysService/ListKeys HTTP/1.1\r\ncontent-type: application/proto",
    ].map(async (head) => ({ head, ...(await openClient(stopping.httpUrl)) })),
  );
  const stopped = stopping.close();
  await expect.poll(() => isOpen(stopping.httpUrl)).toBe(false);
  for (const { head, socket, heard } of clients) {
    socket.write(`${head}\r\nhost: a\r\ncontent-length: 0\r\n\r\n`);
    await once(socket, "close");
    expect(heard()).toMatch(/\r\n\r\n.*HTTP\/1\.1 503 .*\r\nconnection: close\r\n/is);
  }
  await stopped; // without waiting for those who stay
});

describe("who asks how the service fares is told all the same", () => {
  it.each(["/livez", "/readyz", "/v2/liveness", "/livez?from=a-probe"])("%s", async (path) => {
    expectSuccess(await ask(app.httpUrl, path, { method: "GET" }));
  });

  it("over gRPC", async () => {
    const transport = createGrpcTransport({ baseUrl: `http://${app.grpcAddress}` });
    const answer = await transport.unary(Health.method.check, undefined, undefined, undefined, {});
    expect(answer.message.status).toBe(Serving.SERVING);
  });
});

/** A connection that is used again: it has had an answer already. */
async function openClient(url: string): Promise<{ socket: Socket; heard: () => string }> {
  const { hostname, port } = new URL(url);
  const socket = openSocket(Number(port), hostname);
  onTestFinished(() => void socket.destroy());
  let heard = "";
  socket.setEncoding("latin1").on("data", (text) => {
    heard += text;
  });
  socket.write("GET /livez HTTP/1.1\r\nhost: a\r\n\r\n");
  await once(socket, "data");
  return { socket, heard: () => heard };
}

/** Whether a port takes connections. */
async function isOpen(url: string): Promise<boolean> {
  const { hostname, port } = new URL(url);
  const socket = openSocket(Number(port), hostname);
  const opened = await once(socket, "connect").then(
    () => true,
    () => false,
  );
  socket.destroy();
  return opened;
}

function transports(): Record<string, Transport> {
  const { httpUrl: baseUrl, grpcAddress } = app;
  return {
    Connect: createConnectTransport({ baseUrl, httpVersion: "1.1" }),
    "gRPC-Web": createGrpcWebTransport({ baseUrl, httpVersion: "1.1" }),
    "gRPC, by connect-node": createGrpcTransport({ baseUrl: `http://${grpcAddress}` }),
  };
}

async function failureOf(transport: Transport): Promise<ConnectError> {
  const headers = { authorization: `Bearer ${key}` };
  const answer = transport.unary(KeysService.method.listKeys, undefined, undefined, headers, {});
  return ConnectError.from(
    await answer.then(
      () => expect.unreachable("it was served"),
      (error) => error,
    ),
  );
}

function failureOfGrpcJs(client: Client): Promise<ServiceError> {
  const asIs = (bytes: Buffer) => bytes;
  const metadata = new Metadata();
  metadata.set("authorization", `Bearer ${key}`);
  return new Promise((resolve, reject) => {
    client.makeUnaryRequest("/latchkey.v1.KeysService/ListKeys", asIs, asIs, Buffer.alloc(0), metadata, (error) =>
      error ? resolve(error) : reject(new Error("it was served")),
    );
  });
}

async function shedSoFar(): Promise<number> {
  return total(await readSamples(app), "latchkey_shed_total", { bottleneck: "event_loop" });
}
