import { constants } from "node:http2";
import { create, toBinary } from "@bufbuild/protobuf";
import { describe, expect, it, onTestFinished } from "vitest";
import { DelegateRequestSchema } from "../../../gen/latchkey/v1/verifier_service_pb.js";
import type { App } from "../../../src/app.js";
import { defaultLimits } from "../../../src/overload/limits.js";
import { grpcFrame } from "../../support/clients/grpc-streams.js";
import { createWorkspace } from "../../support/clients/http-requests.js";
import { beginCall, frame, framesByStream, preface, resetCall } from "../../support/clients/http2-frames.js";
import { openTestSocket } from "../../support/clients/test-connections.js";
import { openFileService } from "../../support/file-service.js";
import { openTestApp } from "../../support/harness.js";
import { readSamples, total } from "../../support/metric-samples.js";

const { app, key } = await openFileService({ metricsPort: 0 });

const delegate = "/latchkey.v1.VerifierService/Delegate";
const ping = Buffer.from(
  toBinary(DelegateRequestSchema, create(DelegateRequestSchema, { message: { case: "ping", value: { number: 1 } } })),
);
const empty = Buffer.alloc(0);

/** The frames of calls: their headers, a message, and the end of the request if they need it to respond. */
const calls = [
  ["reflection", "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo", empty, false],
  ["Watch of the health service", "/grpc.health.v1.Health/Watch", empty, true],
  ["Delegate", delegate, ping, false],
] as const;

/** A SETTINGS frame: the server may send no byte of a message until the client allows it. */
const noWindow = frame(4, 0, 0, Buffer.from([0, constants.NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, 0, 0, 0, 0]));

/** Opens a connection whose client reads no message. */
function openUnread({ grpcAddress }: App) {
  const socket = openTestSocket(grpcAddress);
  const received: Buffer[] = [];
  socket.on("data", (bytes) => received.push(bytes));
  socket.write(Buffer.concat([preface, noWindow]));
  return {
    socket,
    /** Waits until each of these streams has a frame of its response. */
    async responded(streams: readonly number[]): Promise<void> {
      const frames = () => framesByStream(Buffer.concat(received));
      await expect.poll(() => streams.filter((stream) => !frames().has(stream))).toEqual([]);
    },
    framesOf: (stream: number) => framesByStream(Buffer.concat(received)).get(stream),
  };
}

async function inUse(service: App = app) {
  const samples = await readSamples(service);
  return {
    bytes: total(samples, "latchkey_memory_reserved_bytes"),
    verifierStreams: total(samples, "latchkey_verifier_streams"),
  };
}

const nothing = { bytes: 0, verifierStreams: 0 };

const resetWithNoError = (stream: number) => resetCall(stream, constants.NGHTTP2_NO_ERROR);

describe("a stream that its client resets with NO_ERROR is released at once, although its connection stays open", () => {
  it.each(calls)("%s, with an unread response", async (_call, path, message, ends) => {
    const { socket, responded } = openUnread(app);
    // Twice as many as may be open at once: the first ones do not count any more.
    for (const first of [1, 1 + 2 * defaultLimits.maxPublicStreams]) {
      const streams = Array.from({ length: defaultLimits.maxPublicStreams }, (_, index) => first + 2 * index);
      const end = (stream: number) => (ends ? frame(0, 1, stream, empty) : empty);
      socket.write(Buffer.concat(streams.flatMap((stream) => [beginCall(stream, path, key, message), end(stream)])));
      await responded(streams);
      expect((await inUse()).bytes).toBeGreaterThan(0);
      socket.write(Buffer.concat(streams.map(resetWithNoError)));
      await expect.poll(inUse).toEqual(nothing);
    }
    expect(socket.closed).toBe(false);
  });

  it.each(calls)("%s, together with its request", async (_call, path, message) => {
    const { socket, responded } = openUnread(app);
    const streams = Array.from({ length: 20 }, (_, index) => 1 + 2 * index);
    socket.write(
      Buffer.concat(streams.flatMap((stream) => [beginCall(stream, path, key, message), resetWithNoError(stream)])),
    );
    const last = 41;
    socket.write(beginCall(last, "/none/Such", key, empty));
    await responded([last]);
    socket.write(resetWithNoError(last));
    await expect.poll(inUse).toEqual(nothing);
    expect(socket.closed).toBe(false);
  });
});

it("a stream that the service has ended is reset if its client does not read the end in time", async () => {
  const impatient = await openTestApp({ metricsPort: 0, limits: { headersTimeoutMs: 3_000, requestTimeoutMs: 3_000 } });
  onTestFinished(() => impatient.close());
  const { key: itsKey } = await createWorkspace(impatient.httpUrl);
  const { socket, responded, framesOf } = openUnread(impatient);
  socket.write(beginCall(1, delegate, itsKey, ping));
  await responded([1]);
  socket.write(frame(0, 0, 1, grpcFrame(ping))); // the number of a ping must rise
  await expect.poll(() => inUse(impatient), { timeout: 10_000 }).toEqual(nothing);
  expect(framesOf(1)).toContain(`reset ${constants.NGHTTP2_CANCEL}`);
  expect(socket.closed).toBe(false);
});
