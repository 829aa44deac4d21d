import { once } from "node:events";
import { connect as connectHttp2, constants } from "node:http2";
import { connect, type Socket } from "node:net";
import { setTimeout as sleep } from "node:timers/promises";
import { createClient } from "@connectrpc/connect";
import { createGrpcTransport } from "@connectrpc/connect-node";
import type { Client } from "@grpc/grpc-js";
import { describe, expect, it, onTestFinished } from "vitest";
import { Health, HealthCheckResponse_ServingStatus as Serving } from "../../../gen/grpc/health/v1/health_pb.js";
import { createLog } from "../../../src/observe/log.js";
import { callUnary, openGrpcJs } from "../../support/clients/grpc-js.js";
import { grpcFrame } from "../../support/clients/grpc-streams.js";
import { openTestSocket } from "../../support/clients/test-connections.js";
import { openFileApp } from "../../support/file-service.js";
import { openTestApp } from "../../support/harness.js";

const app = await openFileApp({ grpcKeepaliveMs: 300, grpcMaxConnectionAgeMs: 1_500 });

/** The start of a raw HTTP/2 connection: the preface and an empty SETTINGS frame. */
const preface = Buffer.concat([
  Buffer.from("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
  Buffer.from([0, 0, 0, 4, 0, 0, 0, 0, 0]),
]);
const ping = Buffer.from([0, 0, 8, 6, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8]);

describe("the gRPC port", () => {
  it("closes a connection whose client no longer acknowledges keepalive pings", async () => {
    const socket = openSocket();
    socket.write(preface);
    // The client reads everything and acknowledges no ping.
    let received = "";
    socket.setEncoding("latin1").on("data", (chunk) => {
      received += chunk;
    });
    await once(socket, "close");
    expect(received, "not closed because of its age").not.toContain("max_age");
  });

  it("keeps a connection whose client acknowledges pings until its maximum age, then sends GOAWAY", async () => {
    const session = connectHttp2(`http://${app.grpcAddress}`);
    onTestFinished(() => session.destroy());
    let pings = 0;
    session.on("ping", () => {
      pings += 1;
    });
    const [code, , reason] = await once(session, "goaway");
    expect([code, `${reason}`]).toEqual([constants.NGHTTP2_NO_ERROR, "max_age"]);
    expect(pings).toBeGreaterThan(1);
  });

  it("serves the calls of a connection that has got its GOAWAY, although no keepalive ping can be sent any more", async () => {
    const session = connectHttp2(`http://${app.grpcAddress}`);
    onTestFinished(() => session.destroy());
    const watch = session.request({
      ":method": "POST",
      ":path": "/grpc.health.v1.Health/Watch",
      "content-type": "application/grpc",
      te: "trailers",
    });
    watch.on("error", () => {}).resume();
    watch.end(grpcFrame(Buffer.alloc(0)));
    await once(session, "goaway");
    await sleep(1_000); // three times the interval of pings
    expect(watch.closed).toBe(false);
  });

  it("serves every call of a grpc-js client while its connections reach their maximum age", async () => {
    const client = openGrpcJs(app.grpcAddress);
    onTestFinished(() => client.close());
    const end = Date.now() + 2_500; // beyond the maximum age of one connection
    while (Date.now() < end) await check(client);
  });

  it("disconnects a client that floods it with pings and does not read, and serves other clients", async () => {
    const socket = openSocket();
    socket.pause();
    socket.write(Buffer.concat([preface, ...Array<Buffer>(5_000).fill(ping)]));
    await once(socket.resume(), "close");
    const health = createClient(Health, createGrpcTransport({ baseUrl: `http://${app.grpcAddress}` }));
    expect((await health.check({})).status).toBe(Serving.SERVING);
  });
});

it("graceful shutdown of the gRPC port does not wait for idle clients that ignore their GOAWAY", async () => {
  const lines: string[] = [];
  const log = createLog("warn", { destination: { write: (line) => lines.push(line) } });
  const stopping = await openTestApp({ log });
  const [host = "", port] = stopping.grpcAddress.split(":");
  // It never closes a connection, not even when the service does.
  const client = connect({ host, port: Number(port), allowHalfOpen: true }).on("error", () => {});
  onTestFinished(() => void client.destroy());
  client.write(preface);
  await once(client, "data");
  const errors: Error[] = [];
  client.on("error", (error) => errors.push(error)).resume();
  const closed = stopping.close();
  await once(client, "end");
  // It may still read its last responses meanwhile, and so send window updates.
  const until = performance.now() + 3_000;
  while (performance.now() < until) {
    client.write(ping);
    await sleep(200);
  }
  expect(errors).toEqual([]);
  await closed;
  expect(lines.filter((line) => line.includes("graceful shutdown"))).toEqual([]);
});

/** Calls Health.Check. */
async function check(client: Client): Promise<void> {
  const { error } = await callUnary(client, "/grpc.health.v1.Health/Check", []);
  if (error) throw error;
}

function openSocket(): Socket {
  return openTestSocket(app.grpcAddress);
}
