import { once } from "node:events";
import { get as getHttp, Agent as HttpAgent, type IncomingMessage } from "node:http";
import { get as getHttps, Agent as HttpsAgent } from "node:https";
import { connect } from "node:net";
import { setTimeout as sleep } from "node:timers/promises";
import { create, fromBinary, toBinary } from "@bufbuild/protobuf";
import { Client, credentials } from "@grpc/grpc-js";
import {
  Health,
  HealthCheckRequestSchema,
  HealthCheckResponse_ServingStatus as Serving,
} from "../../gen/grpc/health/v1/health_pb.js";
import type { Target } from "./callers.js";

/** What those saw who look whether the service is ready, in the order in which they saw it. */
export type Sight = "ready" | "not ready" | "refused" | "cut";

/** Looks at `/readyz` until nobody answers: on one connection, or, as probes of Kubernetes do, each time on another. */
export async function pollReadiness(
  { httpUrl, ca }: Target,
  kept: boolean,
  tell: (sight: Sight) => void = () => {},
): Promise<Sight[]> {
  const agent = ca ? new HttpsAgent({ keepAlive: kept, ca }) : new HttpAgent({ keepAlive: kept });
  const get = ca ? getHttps : getHttp;
  const sights: Sight[] = [];
  for (;;) {
    const sight = await new Promise<Sight>((resolve) => {
      get(`${httpUrl}/readyz`, { agent })
        .once("error", ({ code }: NodeJS.ErrnoException) => resolve(code === "ECONNREFUSED" ? "refused" : "cut"))
        .once("response", (response: IncomingMessage) => {
          response.resume().once("end", () => resolve(response.statusCode === 200 ? "ready" : "not ready"));
        });
    });
    tell(sight);
    if (sights.at(-1) !== sight) sights.push(sight);
    if (sight === "refused" || sight === "cut") break;
    await sleep(5);
  }
  agent.destroy();
  return sights;
}

/** What a watcher of the gRPC port's health is told, until the stream ends. */
export async function watchHealth({ grpcAddress, ca }: Target): Promise<Sight[]> {
  const trust = ca ? credentials.createSsl(Buffer.from(ca)) : credentials.createInsecure();
  const client = new Client(grpcAddress, trust, { "grpc.use_local_subchannel_pool": 1 });
  const { name, parent, input, output } = Health.method.watch;
  const asked = create(HealthCheckRequestSchema, {});
  const stream = client.makeServerStreamRequest(
    `/${parent.typeName}/${name}`,
    (message: typeof asked) => Buffer.from(toBinary(input, message)),
    (bytes: Buffer) => fromBinary(output, bytes),
    asked,
  );
  const sights: Sight[] = [];
  stream.on("data", ({ status }) => sights.push(status === Serving.SERVING ? "ready" : "not ready"));
  stream.on("error", () => sights.push("cut"));
  await once(stream, "close");
  client.close();
  return sights;
}

/** Tries to connect to a port again and again; resolves when it is refused. */
export async function firstRefusal(port: number): Promise<void> {
  for (;;) {
    const socket = connect(port, "127.0.0.1");
    const refused = await new Promise<boolean>((resolve) => {
      socket.once("connect", () => resolve(false)).once("error", () => resolve(true));
    });
    socket.destroy();
    if (refused) return;
    await sleep(25);
  }
}
