import { once } from "node:events";
import { get as getHttp, Agent as HttpAgent, type IncomingMessage } from "node:http";
import { get as getHttps, Agent as HttpsAgent } from "node:https";
import { setTimeout as sleep } from "node:timers/promises";
import { create, fromBinary, toBinary } from "@bufbuild/protobuf";
import {
  Health,
  HealthCheckRequestSchema,
  HealthCheckResponse_ServingStatus as Serving,
} from "../../gen/grpc/health/v1/health_pb.js";
import { openGrpcJs } from "../support/clients/grpc-js.js";
import { isRefused } from "../support/clients/sockets.js";
import type { Target } from "../support/clients/unchecked.js";
import { pathOf } from "../support/operations.js";

/** An observation of a readiness or health client. */
export type Observation = "ready" | "not ready" | "refused" | "disconnected";

/**
 * Polls `/readyz` until there is no response: on one keep-alive connection, or on a new one each time, as Kubernetes.
 */
export async function pollReadiness(
  { httpUrl, ca }: Target,
  keepAlive: boolean,
  report: (observation: Observation) => void = () => {},
): Promise<Observation[]> {
  const agent = ca ? new HttpsAgent({ keepAlive, ca }) : new HttpAgent({ keepAlive });
  const get = ca ? getHttps : getHttp;
  const observations: Observation[] = [];
  for (;;) {
    const observation = await new Promise<Observation>((resolve) => {
      get(`${httpUrl}/readyz`, { agent })
        .once("error", ({ code }: NodeJS.ErrnoException) =>
          resolve(code === "ECONNREFUSED" ? "refused" : "disconnected"),
        )
        .once("response", (response: IncomingMessage) => {
          response.resume().once("end", () => resolve(response.statusCode === 200 ? "ready" : "not ready"));
        });
    });
    report(observation);
    if (observations.at(-1) !== observation) observations.push(observation);
    if (observation === "refused" || observation === "disconnected") break;
    await sleep(5);
  }
  agent.destroy();
  return observations;
}

/** The messages of the health watch on the gRPC port, until the stream ends. */
export async function watchHealth({ grpcAddress, ca }: Target): Promise<Observation[]> {
  const client = openGrpcJs(grpcAddress, ca === undefined ? undefined : { ca }, {
    "grpc.use_local_subchannel_pool": 1,
  });
  const { input, output } = Health.method.watch;
  const request = create(HealthCheckRequestSchema, {});
  const stream = client.makeServerStreamRequest(
    pathOf(Health.method.watch),
    (message: typeof request) => Buffer.from(toBinary(input, message)),
    (bytes: Buffer) => fromBinary(output, bytes),
    request,
  );
  const observations: Observation[] = [];
  stream.on("data", ({ status }) => observations.push(status === Serving.SERVING ? "ready" : "not ready"));
  stream.on("error", () => observations.push("disconnected"));
  await once(stream, "close");
  client.close();
  return observations;
}

/** Connects to a port repeatedly; resolves when the connection is refused. */
export async function firstRefusal(port: number): Promise<void> {
  while (!(await isRefused(port))) await sleep(25);
}
