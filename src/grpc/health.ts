// gRPC's health service, by hand on the generated descriptors. grpc-health-check keeps a map of states that somebody has
// to set, while ours is asked of the lease, which is lost by mere passing of time; and it never lets a watcher go, who
// would then hold up the stop.
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

type Answer = MessageInitShape<typeof HealthCheckResponseSchema | typeof HealthListResponseSchema>;
type Asking = ServerUnaryCall<HealthCheckRequest, Answer>;
type Watching = ServerWritableStream<HealthCheckRequest, Answer>;
type Respond = sendUnaryData<Answer>;

/** How often it is asked how the service stands, while somebody watches. */
const lookEveryMs = 250;

/** The health service of one server. */
export interface HealthWatch {
  /** Tells all who watch how the service stands, for the last time, and lets them go. */
  end(): void;
}

/**
 * Adds `grpc.health.v1.Health`: each service, and "" for all of them, is SERVING while the service is ready. Anybody may
 * ask.
 */
export function addHealth(
  server: Server,
  services: readonly DescService[],
  readiness: () => Promise<unknown>,
): HealthWatch {
  const known = new Set(["", ...services.map(({ typeName }) => typeName)]);
  const watchers = new Map<Watching, Serving>();
  let looking = false;
  let ended = false;

  function look(): Promise<Serving> {
    return readiness().then(
      () => Serving.SERVING,
      () => Serving.NOT_SERVING,
    );
  }

  /** Changes alone are told. Who asked for what we do not know is told so once. */
  function tell(stream: Watching, now: Serving): void {
    const state = known.has(stream.request.service) ? now : Serving.SERVICE_UNKNOWN;
    if (!watchers.has(stream) || watchers.get(stream) === state) return;
    watchers.set(stream, state);
    stream.write({ status: state });
  }

  async function keepLooking(): Promise<void> {
    if (looking) return;
    looking = true;
    while (watchers.size > 0) {
      const now = await look();
      for (const stream of watchers.keys()) tell(stream, now);
      await sleep(lookEveryMs, undefined, { ref: false });
    }
    looking = false;
  }

  async function check({ request: { service } }: Asking, respond: Respond): Promise<void> {
    if (known.has(service)) respond(null, { status: await look() });
    else respond({ code: status.NOT_FOUND, details: `There is no service ${service} here.` });
  }

  async function list(_: unknown, respond: Respond): Promise<void> {
    const now = { status: await look() };
    respond(null, { statuses: Object.fromEntries([...known].map((name) => [name, now])) });
  }

  async function watch(stream: Watching): Promise<void> {
    watchers.set(stream, Serving.UNKNOWN);
    stream.once("cancelled", () => watchers.delete(stream));
    tell(stream, await look());
    if (ended) end();
    else void keepLooking();
  }

  function end(): void {
    ended = true;
    for (const stream of watchers.keys()) {
      tell(stream, Serving.NOT_SERVING);
      stream.end();
    }
    watchers.clear();
  }

  const add = ({ name, input, output, methodKind }: DescMethod, handler: UntypedHandleCall) =>
    server.register(
      `/${Health.typeName}/${name}`,
      handler,
      (answer) => Buffer.from(toBinary(output, create(output, answer))),
      (bytes) => fromBinary(input, bytes),
      methodKind === "unary" ? "unary" : "serverStream",
    );
  add(Health.method.check, check);
  add(Health.method.list, list);
  add(Health.method.watch, watch);
  return { end };
}
