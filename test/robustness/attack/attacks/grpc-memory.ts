import { setTimeout as sleep } from "node:timers/promises";
import { gzipSync } from "node:zlib";
import { create, toBinary } from "@bufbuild/protobuf";
import { HealthCheckRequestSchema } from "../../../../gen/grpc/health/v1/health_pb.js";
import { ServerReflectionRequestSchema } from "../../../../gen/grpc/reflection/v1/reflection_pb.js";
import { grpcFrame, grpcStatusWithin, openStream } from "../../../support/clients/grpc-streams.js";
import { callsWithMessage, oneByteEach } from "../../../support/clients/http2-frames.js";
import { connectSocket } from "../../../support/clients/sockets.js";
import { type Attack, outcomeOf } from "../attack.js";
import { describe, startBystander, wasServed } from "../bystander.js";
import { fillWithLargeKeys } from "../heavy-keys.js";
import { openAttackSession } from "../site.js";
import { measureAttack } from "./http-memory.js";

const listKeys = "/latchkey.v1.KeysService/ListKeys";
const unknownKey = "lk_nobody";

export const compressedMessages: Attack = {
  name: "grpc-compressed",
  title: "a client without a credential sends compressed gRPC messages that expand a thousandfold",
  async run(context) {
    const target = await context.start();
    const connections = 8;
    const message = gzipSync(Buffer.alloc(4 * 2 ** 20));
    const compressed = grpcFrame(message);
    compressed[0] = 1;
    let streams = 0;
    const flood = async () => {
      const session = await openAttackSession(context, target);
      for (let call = 0; call < 240; call++) {
        openStream(session, listKeys, unknownKey, { "grpc-encoding": "gzip" })?.end(compressed);
        streams += 1;
      }
      await sleep(500);
      session.destroy();
    };
    // Warm-up: the first calls of a process are many times slower than later ones.
    await Promise.all(Array.from({ length: connections }, flood));
    return measureAttack(context, target, async () => {
      const until = performance.now() + 6_000;
      await Promise.all(
        Array.from({ length: connections }, async () => {
          while (performance.now() < until) await flood();
        }),
      );
      await sleep(4_000);
      return `${streams} calls with a message of ${message.length} bytes that expands to 4 MiB`;
    });
  },
};

export const unreadGrpcLists: Attack = {
  name: "grpc-unread-lists",
  title: "a tenant requests large lists over gRPC with a flow control window of 0",
  async run(context) {
    const target = await context.start();
    const tenant = await target.createTenant();
    await fillWithLargeKeys(target, tenant);
    return measureAttack(context, target, async () => {
      const connections = 4;
      for (let connection = 0; connection < connections; connection++) {
        const session = await openAttackSession(context, target, { initialWindowSize: 0 });
        for (let call = 0; call < 200; call++) {
          openStream(session, listKeys, tenant.key)?.end(grpcFrame(Buffer.alloc(0)));
        }
      }
      await sleep(10_000);
      return `${connections} connections, 200 lists of 3 MB each`;
    });
  },
};

export const oneByteFrames: Attack = {
  name: "grpc-one-byte-frames",
  title: "a gRPC message in one-byte DATA frames takes many times its size in memory",
  async run(context) {
    const target = await context.start();
    const { key } = await target.createTenant();
    return measureAttack(context, target, async () => {
      const connections = 8;
      const streams = 20;
      const framesPerRound = 3_000; // within the flow control window of the connection
      const rounds = 8;
      const headers = [
        [":path", "/latchkey.v1.KeysService/ListKeys"],
        ["authorization", `Bearer ${key}`],
        ["te", "trailers"],
      ] as const;
      const frames = Buffer.concat(Array.from({ length: framesPerRound }, () => oneByteEach(streams)));
      await Promise.all(
        Array.from({ length: connections }, async () => {
          const socket = await connectSocket(target.grpcAddress);
          context.addCleanup(() => socket.destroy());
          socket.resume().write(callsWithMessage(streams, headers, 120_000));
          for (let round = 0; round < rounds && !socket.destroyed; round++) {
            socket.write(frames);
            await sleep(500);
          }
        }),
      );
      await sleep(2_000);
      return `${connections * streams} messages, each in up to ${rounds * framesPerRound} frames of one byte`;
    });
  },
};

export const reflectionFlood: Attack = {
  name: "reflection-flood",
  title: "a client without a credential keeps the service busy with reflection requests on one stream",
  async run(context) {
    const target = await context.start();
    const request = grpcFrame(
      Buffer.from(
        toBinary(
          ServerReflectionRequestSchema,
          create(ServerReflectionRequestSchema, {
            messageRequest: { case: "fileContainingSymbol", value: "latchkey.v1.KeysService" },
          }),
        ),
      ),
    );
    const bystander = await startBystander(context, target);
    const requests = 50_000;
    let received = 0;
    await Promise.all(
      Array.from({ length: 4 }, async () => {
        const session = await openAttackSession(context, target);
        const path = "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo";
        const stream = openStream(session, path, "");
        stream?.on("data", (bytes: Buffer) => {
          received += bytes.length;
        });
        for (let sent = 0; sent < requests && stream && !stream.destroyed; sent += 500) {
          stream.write(Buffer.concat(Array.from({ length: 500 }, () => request)));
          await sleep(20);
        }
        session.destroy();
      }),
    );
    const measurements = await bystander.finish();
    const receivedMb = received / 2 ** 20;
    return outcomeOf(
      { "responses bounded": receivedMb < 64, "other tenants served": wasServed(measurements) },
      `4 streams of ${requests} requests: ${receivedMb.toFixed(0)} MiB of responses; ${describe(measurements)}`,
    );
  },
};

export const watchFlood: Attack = {
  name: "watch-flood",
  title: "a client without a credential opens any number of Health.Watch streams",
  async run(context) {
    const target = await context.start();
    const request = grpcFrame(Buffer.from(toBinary(HealthCheckRequestSchema, create(HealthCheckRequestSchema))));
    const connections = 200;
    let open = 0;
    const { withstood, observed } = await measureAttack(context, target, async () => {
      for (let connection = 0; connection < connections; connection++) {
        const session = await openAttackSession(context, target);
        for (let call = 0; call < 240; call++) {
          const stream = openStream(session, "/grpc.health.v1.Health/Watch", "");
          if (stream === undefined) continue;
          open += 1;
          stream.once("close", () => {
            open -= 1;
          });
          stream.resume().end(request);
        }
      }
      await sleep(3_000);
      return `${connections * 240} streams begun, ${open} still open`;
    });
    // A legitimate client that watches all services has only a few streams.
    return withstood ? outcomeOf({ "streams limited": open <= connections * 10 }, observed) : { withstood, observed };
  },
};

export const idleConnections: Attack = {
  name: "idle-connections",
  title: "idle connections of one client block all other clients",
  async run(context) {
    const maxConnections = 50;
    const target = await context.start({ env: { MAX_CONNECTIONS: `${maxConnections}` } });
    const { key } = await target.createTenant();
    const idle = await Promise.all(Array.from({ length: maxConnections }, () => openAttackSession(context, target)));
    const idleHttp = await Promise.all(Array.from({ length: maxConnections }, () => connectSocket(target.httpUrl)));
    context.addCleanup(() => idleHttp.forEach((socket) => void socket.destroy()));
    await sleep(500);
    const session = await openAttackSession(context, target);
    const stream = openStream(session, listKeys, key);
    stream?.end(grpcFrame(Buffer.alloc(0)));
    const grpcStatus = stream ? await grpcStatusWithin(stream) : Number.NaN;
    const httpStatus = await fetch(`${target.httpUrl}/livez`, { headers: { connection: "close" } }).then(
      ({ status }) => status,
      () => 0,
    );
    const open = idle.filter(({ closed }) => !closed).length;
    return outcomeOf(
      { "gRPC served": grpcStatus === 0, "HTTP served": httpStatus === 200 },
      `${maxConnections} idle connections per port, ${open} left; status of gRPC: ${grpcStatus}, HTTP: ${httpStatus}`,
    );
  },
};
