import { once } from "node:events";
import { connect as connectHttp2, constants } from "node:http2";
import { connect, type Socket } from "node:net";
import { createClient } from "@connectrpc/connect";
import { createGrpcTransport } from "@connectrpc/connect-node";
import { Client, credentials } from "@grpc/grpc-js";
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from "vitest";
import { Health, HealthCheckResponse_ServingStatus as Serving } from "../../../gen/grpc/health/v1/health_pb.js";
import { openTestApp, type TestApp } from "../../support/harness.js";

let app: TestApp;
beforeAll(async () => {
  app = await openTestApp({ grpcKeepaliveMs: 300, grpcMaxConnectionAgeMs: 1_500 });
});
afterAll(() => app.close());

/** How a bare client greets: HTTP/2's preface, and settings without any setting. */
const greeting = Buffer.concat([
  Buffer.from("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
  Buffer.from([0, 0, 0, 4, 0, 0, 0, 0, 0]),
]);
const ping = Buffer.from([0, 0, 8, 6, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8]);

describe("the gRPC port", () => {
  it("closes a connection whose client does not answer any more", async () => {
    const socket = openBare();
    socket.write(greeting);
    // It takes all that comes and answers no ping.
    let came = "";
    socket.setEncoding("latin1").on("data", (chunk) => {
      came += chunk;
    });
    await once(socket, "close");
    expect(came, "not for its age").not.toContain("max_age");
  });

  it("keeps a connection whose client answers, until it is old: then asks the client to connect anew", async () => {
    const session = connectHttp2(`http://${app.grpcAddress}`);
    onTestFinished(() => session.destroy());
    let pings = 0;
    session.on("ping", () => {
      pings += 1;
    });
    const [code, , why] = await once(session, "goaway");
    expect([code, `${why}`]).toEqual([constants.NGHTTP2_NO_ERROR, "max_age"]);
    expect(pings).toBeGreaterThan(1);
  });

  it("answers every call of a grpc-js client whose connections grow old", async () => {
    const client = new Client(app.grpcAddress, credentials.createInsecure());
    onTestFinished(() => client.close());
    const longerThanOne = Date.now() + 2_500;
    while (Date.now() < longerThanOne) await check(client);
  });

  it("sends away a client that pings without end and reads no answer, and serves the others", async () => {
    const socket = openBare();
    socket.pause();
    socket.write(Buffer.concat([greeting, ...Array<Buffer>(5_000).fill(ping)]));
    await once(socket.resume(), "close");
    const health = createClient(Health, createGrpcTransport({ baseUrl: `http://${app.grpcAddress}` }));
    expect((await health.check({})).status).toBe(Serving.SERVING);
  });
});

/** Asks for the health. */
function check(client: Client): Promise<void> {
  const asIs = (bytes: Buffer) => bytes;
  return new Promise((resolve, reject) => {
    client.makeUnaryRequest("/grpc.health.v1.Health/Check", asIs, asIs, Buffer.alloc(0), (error) =>
      error ? reject(error) : resolve(),
    );
  });
}

function openBare(): Socket {
  const { hostname, port } = new URL(`http://${app.grpcAddress}`);
  const socket = connect(Number(port), hostname);
  socket.on("error", () => {});
  onTestFinished(() => void socket.destroy());
  return socket;
}
