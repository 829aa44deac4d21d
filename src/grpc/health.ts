// The gRPC health service, implemented on the generated descriptors instead of with grpc-health-check. That package
// serves states that the application has to set, while ours depends on the lease, which expires as time passes without
// any event. It also never ends a Watch stream, which would delay the shutdown.
import { setTimeout as sleep } from "node:timers/promises";
import {
  create,
  type DescMethod,
  type DescService,
  fromBinary,
  type MessageInitShape,
  toBinary,
} from "@bufbuild/protobuf";
import {
  type Server,
  type ServerUnaryCall,
  type ServerWritableStream,
  type sendUnaryData,
  status,
  type UntypedHandleCall,
} from "@grpc/grpc-js";
import {
  Health,
  type HealthCheckRequest,
  type HealthCheckResponseSchema,
  type HealthListResponseSchema,
  HealthCheckResponse_ServingStatus as Serving,
} from "../../gen/grpc/health/v1/health_pb.js";

type HealthResponse = MessageInitShape<typeof HealthCheckResponseSchema | typeof HealthListResponseSchema>;
type UnaryCall = ServerUnaryCall<HealthCheckRequest, HealthResponse>;
type WatchStream = ServerWritableStream<HealthCheckRequest, HealthResponse>;
type Respond = sendUnaryData<HealthResponse>;

/** How often readiness is polled while at least one Watch stream is open. */
const pollIntervalMs = 250;

/** The health service of one server. */
export interface HealthService {
  /** Sends NOT_SERVING to all Watch streams and ends them. */
  end(): void;
}

/**
 * Adds `grpc.health.v1.Health`. Each service, and "" for the server as a whole, is SERVING while readiness resolves. No
 * credential is needed.
 */
export function addHealth(
  server: Server,
  services: readonly DescService[],
  readiness: () => Promise<unknown>,
): HealthService {
  const knownNames = new Set(["", ...services.map(({ typeName }) => typeName)]);
  const watchers = new Map<WatchStream, Serving>();
  let isPolling = false;
  let ended = false;

  function currentStatus(): Promise<Serving> {
    return readiness().then(
      () => Serving.SERVING,
      () => Serving.NOT_SERVING,
    );
  }

  /** Sends only changes of the status. For an unknown service, that is SERVICE_UNKNOWN once. */
  function sendStatus(stream: WatchStream, current: Serving): void {
    const state = knownNames.has(stream.request.service) ? current : Serving.SERVICE_UNKNOWN;
    if (!watchers.has(stream) || watchers.get(stream) === state) return;
    watchers.set(stream, state);
    stream.write({ status: state });
  }

  async function pollWhileWatched(): Promise<void> {
    if (isPolling) return;
    isPolling = true;
    while (watchers.size > 0) {
      const current = await currentStatus();
      for (const stream of watchers.keys()) sendStatus(stream, current);
      await sleep(pollIntervalMs, undefined, { ref: false });
    }
    isPolling = false;
  }

  async function check({ request: { service } }: UnaryCall, respond: Respond): Promise<void> {
    if (knownNames.has(service)) respond(null, { status: await currentStatus() });
    else respond({ code: status.NOT_FOUND, details: `This server has no service ${service}.` });
  }

  async function list(_: unknown, respond: Respond): Promise<void> {
    const current = { status: await currentStatus() };
    respond(null, { statuses: Object.fromEntries([...knownNames].map((name) => [name, current])) });
  }

  async function watch(stream: WatchStream): Promise<void> {
    watchers.set(stream, Serving.UNKNOWN);
    stream.once("cancelled", () => watchers.delete(stream));
    sendStatus(stream, await currentStatus());
    if (ended) end();
    else void pollWhileWatched();
  }

  function end(): void {
    ended = true;
    for (const stream of watchers.keys()) {
      sendStatus(stream, Serving.NOT_SERVING);
      stream.end();
    }
    watchers.clear();
  }

  const add = ({ name, input, output, methodKind }: DescMethod, handler: UntypedHandleCall) =>
    server.register(
      `/${Health.typeName}/${name}`,
      handler,
      (response) => Buffer.from(toBinary(output, create(output, response))),
      (bytes) => fromBinary(input, bytes),
      methodKind === "unary" ? "unary" : "serverStream",
    );
  add(Health.method.check, check);
  add(Health.method.list, list);
  add(Health.method.watch, watch);
  return { end };
}
