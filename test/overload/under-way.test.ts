import { once } from "node:events";
import { connect as connectHttp2, constants } from "node:http2";
import { connect } from "node:net";
import { fromBinary } from "@bufbuild/protobuf";
import { anyUnpack } from "@bufbuild/protobuf/wkt";
import { status } from "@grpc/grpc-js";
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from "vitest";
import { ErrorInfoSchema } from "../../gen/google/rpc/error_details_pb.js";
import { StatusSchema } from "../../gen/google/rpc/status_pb.js";
import { createWorkspace } from "../gateway/http.js";
import { openTestApp, type TestApp } from "../harness.js";
import { readSamples, total } from "../observe/samples.js";
import { callHeaders, callsLeftOpen, endOfCall, grpcStatusOf, prefixed, saidOnStreams } from "./bare-grpc.js";

/** Less than the clients below bring together, and more than any of them brings alone. */
const limits = { bytesInAll: 4 * 2 ** 20 };
/** How many calls may be under way on a gRPC connection. */
const most = 250;
const rpc = "/latchkey.v1.KeysService/ListKeys";

/** What is left when one of those who fill the room was refused is less than this. */
const large = 100_000;
/** An unknown field of so many bytes. */
const largeMessage = prefixed(Buffer.concat([Buffer.from([0xfa, 0x3f, 0xa0, 0x8d, 0x06]), Buffer.alloc(large)]));

let app: TestApp;
let key: string;
beforeAll(async () => {
  app = await openTestApp({ limits, metricsPort: 0 });
  key = (await createWorkspace(app.httpUrl)).key;
});
afterAll(() => app.close());

describe("while clients of gRPC have sent as much as all may together, and finished nothing", () => {
  it("what is large is refused and counted, what is small is served, and all when they have gone", async () => {
    const before = await turnedAway();
    const leave = fillByGrpc();
    await expect.poll(turnedAway, { timeout: 10_000 }).toBeGreaterThan(before);

    const { status: found, details } = await callGrpc(largeMessage);
    expect(found).toBe(status.UNAVAILABLE);
    const [first] = fromBinary(StatusSchema, details).details;
    expect(first && anyUnpack(first, ErrorInfoSchema)).toMatchObject({ reason: "SERVICE_UNAVAILABLE" });
    expect((await turnedAway()) - before).toBeGreaterThanOrEqual(2);

    expect((await callGrpc(prefixed(Buffer.alloc(0)))).status).toBe(status.OK);

    leave();
    await expect.poll(async () => (await callGrpc(largeMessage)).status, { timeout: 10_000 }).toBe(status.OK);
  });
});

it("what was answered takes no room: many large calls, one after the other, are all served", async () => {
  for (let calls = 0; calls < 50; calls++) {
    expect((await callGrpc(largeMessage)).status).toBe(status.OK);
  }
});

describe("of the calls on one gRPC connection", () => {
  it("250 are under way at once; the next waits for one of them to end, and others do not", async () => {
    const session = openSession();
    await once(session, "remoteSettings");
    const underWay = Array.from({ length: most }, () => session.request(callHeaders(rpc, key)));
    const next = session.request(callHeaders(rpc, key)).end(prefixed(Buffer.alloc(0)));
    const nextEnd = grpcStatusOf(next);
    for (let others = 0; others < 5; others++) {
      expect((await callGrpc(prefixed(Buffer.alloc(0)))).status).toBe(status.OK);
    }
    expect(next.closed, "answered although 250 are under way").toBe(false);
    for (const stream of underWay.slice(0, 3)) {
      expect(await grpcStatusOf(stream.end(prefixed(Buffer.alloc(0))))).toBe(status.OK);
    }
    expect(await nextEnd).toBe(status.OK);
  });

  it("the next is refused if its client does not wait, and the others are answered", async () => {
    const { hostname, port } = new URL(`http://${app.grpcAddress}`);
    const socket = connect(Number(port), hostname).on("error", () => {});
    onTestFinished(() => void socket.destroy());
    const came: Buffer[] = [];
    socket.on("data", (bytes) => came.push(bytes));
    const said = () => saidOnStreams(Buffer.concat(came));
    socket.write(callsLeftOpen(most + 1));
    const refused = 2 * most + 1;
    await expect.poll(() => said().get(refused)).toEqual([`reset ${constants.NGHTTP2_REFUSED_STREAM}`]);
    expect([...said().keys()]).toEqual([refused]);
    socket.write(endOfCall(1));
    await expect.poll(() => said().get(1)).toContain("frame 1");
  });
});

/** Clients of gRPC, who need not be known, each within the limit of its connection. Gives what makes them leave. */
function fillByGrpc(): () => void {
  const sessions = Array.from({ length: 5 }, openSession);
  for (const session of sessions) {
    for (let streams = 0; streams < 20; streams++) {
      const stream = session.request(callHeaders(rpc, "nobody"));
      stream.on("error", () => {});
      stream.write(prefixed(Buffer.alloc(2 ** 20)).subarray(0, 2 ** 16));
    }
  }
  return () => {
    for (const session of sessions) session.destroy();
  };
}

async function callGrpc(message: Buffer): Promise<{ status: number; details: Buffer }> {
  const session = openSession();
  const stream = session.request(callHeaders(rpc, key));
  stream.on("error", () => {});
  let details = "";
  stream.on("response", (headers) => {
    details = String(headers["grpc-status-details-bin"] ?? "");
  });
  const found = await grpcStatusOf(stream.end(message));
  session.destroy();
  return { status: found, details: Buffer.from(details, "base64") };
}

function openSession() {
  const session = connectHttp2(`http://${app.grpcAddress}`);
  session.on("error", () => {});
  onTestFinished(() => session.destroy());
  return session;
}

async function turnedAway(): Promise<number> {
  return total(await readSamples(app), "latchkey_shed_total", { bottleneck: "memory" });
}
