import { setTimeout as sleep } from "node:timers/promises";
import { gzipSync } from "node:zlib";
import { create, toBinary } from "@bufbuild/protobuf";
import { HealthCheckRequestSchema } from "../../../../gen/grpc/health/v1/health_pb.js";
import { ServerReflectionRequestSchema } from "../../../../gen/grpc/reflection/v1/reflection_pb.js";
import { callsBegun, oneByteEach, prefixed } from "../../overload/bare-grpc.js";
import { type Attack, outcomeOf } from "../attack.js";
import { describe, startBystander, wasServed } from "../bystander.js";
import { openSession, openStream, statusOf } from "../grpc-client.js";
import { fillWithHeavyKeys } from "../heavy-keys.js";
import { openSocket } from "../sockets.js";
import { whileWatched } from "./http-memory.js";

const listKeys = "/latchkey.v1.KeysService/ListKeys";
const stranger = "lk_nobody";

export const compressedMessages: Attack = {
  name: "grpc-compressed",
  title: "a stranger sends compressed gRPC messages that expand a thousandfold",
  async run(site) {
    const target = await site.start();
    const connections = 8;
    const message = gzipSync(Buffer.alloc(4 * 2 ** 20));
    const compressed = prefixed(message);
    compressed[0] = 1;
    let streams = 0;
    const flood = async () => {
      const session = await openSession(site, target);
      for (let call = 0; call < 240; call++) {
        openStream(session, listKeys, stranger, { "grpc-encoding": "gzip" })?.end(compressed);
        streams += 1;
      }
      await sleep(500);
      session.destroy();
    };
    // The first calls of a process take many times as long as later ones, whatever they are.
    await Promise.all(Array.from({ length: connections }, flood));
    return whileWatched(site, target, async () => {
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
  title: "a tenant asks for heavy lists by gRPC with a window of 0",
  async run(site) {
    const target = await site.start();
    const tenant = await target.createTenant();
    await fillWithHeavyKeys(target, tenant);
    return whileWatched(site, target, async () => {
      const connections = 4;
      for (let connection = 0; connection < connections; connection++) {
        const session = await openSession(site, target, { initialWindowSize: 0 });
        for (let call = 0; call < 200; call++) {
          openStream(session, listKeys, tenant.key)?.end(prefixed(Buffer.alloc(0)));
        }
      }
      await sleep(10_000);
      return `${connections} connections, 200 lists of 3 MB each`;
    });
  },
};

export const oneByteFrames: Attack = {
  name: "grpc-one-byte-frames",
  title: "a gRPC message in DATA frames of one byte costs many times its size",
  async run(site) {
    const target = await site.start();
    const { key } = await target.createTenant();
    return whileWatched(site, target, async () => {
      const connections = 8;
      const streams = 20;
      const piecesAtOnce = 3_000; // within the window of the connection
      const rounds = 8;
      const headers = [
        [":path", "/latchkey.v1.KeysService/ListKeys"],
        ["authorization", `Bearer ${key}`],
        ["te", "trailers"],
      ] as const;
      const pieces = Buffer.concat(Array.from({ length: piecesAtOnce }, () => oneByteEach(streams)));
      await Promise.all(
        Array.from({ length: connections }, async () => {
          const socket = await openSocket(target.grpcPort);
          site.afterwards(() => socket.destroy());
          socket.resume().write(callsBegun(streams, headers, 120_000));
          for (let round = 0; round < rounds && !socket.destroyed; round++) {
            socket.write(pieces);
            await sleep(500);
          }
        }),
      );
      await sleep(2_000);
      return `${connections * streams} messages, each in up to ${rounds * piecesAtOnce} frames of one byte`;
    });
  },
};

export const reflectionFlood: Attack = {
  name: "reflection-flood",
  title: "a stranger keeps the service busy by reflection requests on one stream",
  async run(site) {
    const target = await site.start();
    const question = prefixed(
      Buffer.from(
        toBinary(
          ServerReflectionRequestSchema,
          create(ServerReflectionRequestSchema, {
            messageRequest: { case: "fileContainingSymbol", value: "latchkey.v1.KeysService" },
          }),
        ),
      ),
    );
    const bystander = await startBystander(site, target);
    const questions = 50_000;
    let received = 0;
    await Promise.all(
      Array.from({ length: 4 }, async () => {
        const session = await openSession(site, target);
        const path = "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo";
        const stream = openStream(session, path, "");
        stream?.on("data", (bytes: Buffer) => {
          received += bytes.length;
        });
        for (let sent = 0; sent < questions && stream && !stream.destroyed; sent += 500) {
          stream.write(Buffer.concat(Array.from({ length: 500 }, () => question)));
          await sleep(20);
        }
        session.destroy();
      }),
    );
    const experience = await bystander.finish();
    const receivedMb = received / 2 ** 20;
    return outcomeOf(
      { bounded: receivedMb < 64, "serving others": wasServed(experience) },
      `4 streams, up to ${questions} requests each: ${receivedMb.toFixed(0)} MiB answered; ${describe(experience)}`,
    );
  },
};

export const watchFlood: Attack = {
  name: "watch-flood",
  title: "a stranger has the service keep any number of Health.Watch streams",
  async run(site) {
    const target = await site.start();
    const request = prefixed(Buffer.from(toBinary(HealthCheckRequestSchema, create(HealthCheckRequestSchema))));
    const connections = 200;
    let kept = 0;
    const { withstood, observed } = await whileWatched(site, target, async () => {
      for (let connection = 0; connection < connections; connection++) {
        const session = await openSession(site, target);
        for (let call = 0; call < 240; call++) {
          const stream = openStream(session, "/grpc.health.v1.Health/Watch", "");
          if (stream === undefined) continue;
          kept += 1;
          stream.once("close", () => {
            kept -= 1;
          });
          stream.resume().end(request);
        }
      }
      await sleep(3_000);
      return `${connections * 240} streams begun, ${kept} kept`;
    });
    // A client that watches all of our services has a handful.
    return withstood ? outcomeOf({ "ending them": kept <= connections * 10 }, observed) : { withstood, observed };
  },
};

export const idleConnections: Attack = {
  name: "idle-connections",
  title: "idle connections of one client keep everybody else out",
  async run(site) {
    const most = 50;
    const target = await site.start({ env: { MAX_CONNECTIONS: `${most}` } });
    const { key } = await target.createTenant();
    const idle = await Promise.all(Array.from({ length: most }, () => openSession(site, target)));
    const idleHttp = await Promise.all(Array.from({ length: most }, () => openSocket(target.httpPort)));
    site.afterwards(() => idleHttp.forEach((socket) => void socket.destroy()));
    await sleep(500);
    const session = await openSession(site, target);
    const stream = openStream(session, listKeys, key);
    stream?.end(prefixed(Buffer.alloc(0)));
    const grpcStatus = stream ? await statusOf(stream) : -1;
    const httpStatus = await fetch(`${target.httpUrl}/livez`, { headers: { connection: "close" } }).then(
      ({ status }) => status,
      () => 0,
    );
    const open = idle.filter(({ closed }) => !closed).length;
    return outcomeOf(
      { "serving gRPC": grpcStatus === 0, "serving HTTP": httpStatus === 200 },
      `${most} idle connections per port: a new gRPC client got ${grpcStatus}, an HTTP client ${httpStatus}; ${open} left`,
    );
  },
};
