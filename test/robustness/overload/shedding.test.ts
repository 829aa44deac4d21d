import { once } from "node:events";
import { connect } from "node:http2";
import { connect as openSocket, type Socket } from "node:net";
import { fromBinary } from "@bufbuild/protobuf";
import { anyUnpack } from "@bufbuild/protobuf/wkt";
import { Code, ConnectError, type Transport } from "@connectrpc/connect";
import { createConnectTransport, createGrpcTransport, createGrpcWebTransport } from "@connectrpc/connect-node";
import { type Client, type ServiceError, status } from "@grpc/grpc-js";
import { beforeEach, describe, expect, it, onTestFinished } from "vitest";
import { ErrorInfoSchema } from "../../../gen/google/rpc/error_details_pb.js";
import { StatusSchema } from "../../../gen/google/rpc/status_pb.js";
import { Health, HealthCheckResponse_ServingStatus as Serving } from "../../../gen/grpc/health/v1/health_pb.js";
import { KeysService } from "../../../gen/latchkey/v1/keys_service_pb.js";
import { createLog } from "../../../src/observe/log.js";
import { callUnary, openGrpcJs } from "../../support/clients/grpc-js.js";
import { callHeaders, grpcStatusOf } from "../../support/clients/grpc-streams.js";
import { headersOf } from "../../support/clients/headers.js";
import { expectError, expectSuccess, send, sendBytes } from "../../support/clients/http-requests.js";
import { openFileService } from "../../support/file-service.js";
import { openTestApp } from "../../support/harness.js";
import { readSamples, total } from "../../support/metric-samples.js";

/** A service that behaves as overloaded while `busy` is set. */
let busy = false;
const lines: { msg: string; bottleneck?: string; code?: string }[] = [];

const { app, key } = await openFileService({
  metricsPort: 0,
  guard: { accepts: () => !busy },
  log: createLog("info", { destination: { write: (line) => lines.push(JSON.parse(line)) } }),
});
beforeEach(() => {
  busy = true;
  return () => {
    busy = false;
  };
});

describe("load shedding: a call that arrives while the process is overloaded", () => {
  it("gets 503 with the error envelope and Retry-After over HTTP; the connection can be reused", async () => {
    const response = await send(app.httpUrl, "/v1/keys.listKeys", { key });
    const { detail } = expectError(response, 503, "application/service_unavailable");
    expect(detail).toContain("did not process this request");
    expect(response.headers["retry-after"]).toMatch(/^\d+$/);

    const body = { method: "POST", headers: { authorization: `Bearer ${key}`, "content-type": "application/json" } };
    const first = await fetch(`${app.httpUrl}/v1/keys.listKeys`, { ...body, body: "{}" });
    expect([first.status, first.headers.get("connection")]).toEqual([503, "keep-alive"]);
    await first.arrayBuffer();
    busy = false;
    expectSuccess(await send(app.httpUrl, "/v1/keys.listKeys", { key }));
  });

  it("has its connection closed if a proxy may interpret it differently", async () => {
    const response = await sendBytes(app.httpUrl, "GET /v1/keys.listKeys HTTP/1.1\r\nhost: a\r\nhost: b\r\n\r\n");
    expectError(response, 503, "application/service_unavailable");
    expect(response.headers.connection).toBe("close");
  });

  it("gets a response without a body to HEAD, and the next response on the connection is intact", async () => {
    const socket = openSocket(Number(new URL(app.httpUrl).port), "127.0.0.1").setEncoding("latin1");
    onTestFinished(() => void socket.destroy());
    const send = (method: string) => socket.write(`${method} /v1/keys.listKeys HTTP/1.1\r\nhost: a\r\n\r\n`);
    let received = "";
    socket.on("data", (text: string) => {
      received += text;
    });
    send("HEAD");
    await expect.poll(() => received).toMatch(/^HTTP\/1\.1 503 .*\r\n\r\n$/s);
    const first = received.length;
    send("GET");
    await expect.poll(() => received.slice(first)).toMatch(/^HTTP\/1\.1 503 .*\r\n\r\n\{.*\}\n$/s);
  });

  it("gets the same response for any credential, because it is shed before authentication", async () => {
    const responses = await Promise.all(
      [undefined, "nonsense", key].map((key) => send(app.httpUrl, "/v1/keys.listKeys", { ...(key && { key }) })),
    );
    const texts = responses.map(({ text }) => text.replace(/req_\w+/, ""));
    expect(new Set(texts).size).toBe(1);
  });

  it.each(["Connect", "gRPC-Web", "gRPC, by connect-node"])(
    "is UNAVAILABLE over %s, with error details",
    async (protocol) => {
      const error = await errorOf(transports()[protocol] as Transport);
      expect(error.code).toBe(Code.Unavailable);
      const [info] = error.findDetails(ErrorInfoSchema);
      expect(info).toMatchObject({ reason: "SERVICE_UNAVAILABLE", domain: "latchkey" });
      expect(info?.metadata["requestId"]).toMatch(/^req_\w{26}$/);
      expect(error.metadata.get("x-request-id")).toBe(info?.metadata["requestId"]);
    },
  );

  it("is UNAVAILABLE for grpc-js, each with its own request id", async () => {
    const client = openGrpcJs(app.grpcAddress);
    const errors = await Promise.all([1, 2, 3].map(() => errorOfGrpcJs(client)));
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
    "is UNAVAILABLE for any method: %s",
    async (path) => {
      const session = connect(`http://${app.grpcAddress}`);
      const stream = session.request(callHeaders(path, key));
      expect(await grpcStatusOf(stream.end())).toBe(status.UNAVAILABLE);
      session.close();
    },
  );

  it("is counted but not logged; the start of the overload is logged", async () => {
    const before = await shedSoFar();
    const calls = lines.filter(({ msg }) => msg === "call").length;
    for (let call = 0; call < 3; call++) await send(app.httpUrl, "/v1/keys.listKeys", { key });
    await errorOf(transports()["Connect"] as Transport);
    expect((await shedSoFar()) - before).toBe(4);
    expect(lines.filter(({ msg }) => msg === "call")).toHaveLength(calls);
    const startLines = lines.filter(
      ({ msg, bottleneck }) => msg.startsWith("overloaded") && bottleneck === "event_loop",
    );
    expect(startLines.length).toBeGreaterThan(0);
    expect(startLines.length).toBeLessThan(await shedSoFar());
  });
});

it("during graceful shutdown, a shed response is the last on its connection, which is then closed", async () => {
  const stopping = await openTestApp({ guard: { accepts: () => !busy }, lingerMs: 60_000 });
  const clients = await Promise.all(
    [
      "POST /v1/keys.listKeys HTTP/1.1",
      "POST /latchkey.v1.KeysService/ListKeys HTTP/1.1\r\ncontent-type: application/proto",
    ].map(async (headers) => ({ headers, ...(await openClient(stopping.httpUrl)) })),
  );
  const stopped = stopping.close();
  await expect.poll(() => isOpen(stopping.httpUrl)).toBe(false);
  for (const { headers, socket, received } of clients) {
    socket.write(`${headers}\r\nhost: a\r\ncontent-length: 0\r\n\r\n`);
    await once(socket, "close");
    expect(received()).toMatch(/\r\n\r\n.*HTTP\/1\.1 503 .*\r\nconnection: close\r\n/is);
  }
  await stopped; // without waiting for idle connections
});

describe("health checks are answered during overload", () => {
  it.each(["/livez", "/readyz", "/v2/liveness", "/livez?from=a-probe"])("%s", async (path) => {
    expectSuccess(await send(app.httpUrl, path, { method: "GET" }));
  });

  it("over gRPC", async () => {
    const transport = createGrpcTransport({ baseUrl: `http://${app.grpcAddress}` });
    const response = await transport.unary(Health.method.check, undefined, undefined, undefined, {});
    expect(response.message.status).toBe(Serving.SERVING);
  });
});

/** A keep-alive connection that has already received a response. */
async function openClient(url: string): Promise<{ socket: Socket; received: () => string }> {
  const { hostname, port } = new URL(url);
  const socket = openSocket(Number(port), hostname);
  onTestFinished(() => void socket.destroy());
  let received = "";
  socket.setEncoding("latin1").on("data", (text) => {
    received += text;
  });
  socket.write("GET /livez HTTP/1.1\r\nhost: a\r\n\r\n");
  await once(socket, "data");
  return { socket, received: () => received };
}

/** Whether a port accepts connections. */
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

async function errorOf(transport: Transport): Promise<ConnectError> {
  const headers = { authorization: `Bearer ${key}` };
  const call = transport.unary(KeysService.method.listKeys, undefined, undefined, headers, {});
  return ConnectError.from(
    await call.then(
      () => expect.unreachable("it was served"),
      (error) => error,
    ),
  );
}

async function errorOfGrpcJs(client: Client): Promise<ServiceError> {
  const { error } = await callUnary(client, "/latchkey.v1.KeysService/ListKeys", headersOf(key));
  return error ?? expect.unreachable("it was served");
}

async function shedSoFar(): Promise<number> {
  return total(await readSamples(app), "latchkey_shed_total", { bottleneck: "event_loop" });
}
