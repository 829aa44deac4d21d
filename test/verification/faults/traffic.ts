import type { ProtocolClient } from "../../support/clients/low-cost/client.js";
import { openConnectClient } from "../../support/clients/low-cost/connect.js";
import { openGrpcClient } from "../../support/clients/low-cost/grpc.js";
import { openHttpClient } from "../../support/clients/low-cost/http.js";
import type { Call } from "./calls.js";
import { checkCall } from "./checker.js";
import type { Random } from "./random.js";
import type { Replica } from "./replica.js";
import { add, recordViolations, type Tally } from "./tally.js";

/** The clients of one replica, one per protocol. */
export interface ReplicaClients {
  readonly replica: Replica;
  readonly clients: readonly ProtocolClient[];
}

/** Opens clients for every protocol of each replica. */
export function openReplicaClients(replicas: readonly Replica[]): ReplicaClients[] {
  return replicas.map((replica) => ({ replica, clients: clientsOf(replica) }));
}

function clientsOf({ grpcPort, httpPort }: Replica): ProtocolClient[] {
  return [openGrpcClient(grpcPort), openHttpClient(httpPort), openConnectClient(httpPort)];
}

/** Provides calls that observe the current subjects. */
export interface CallSource {
  next(): Call | undefined;
}

/**
 * The maximum of calls in flight per client. An unresponsive replica must not take all capacity of the test process.
 */
const maxInFlight = 12;
const tickMs = 4;

/**
 * A stopped replica refuses connections at once. Without this pause, and a limit of one call in flight until it
 * responds again, it would get all calls.
 */
const pauseMs = 50;

/** Makes calls at this rate over all protocols of all replicas, and checks each result. */
export function startTraffic(
  replicaClients: readonly ReplicaClients[],
  callsPerSecond: number,
  source: CallSource,
  tally: Tally,
  activeFaults: () => readonly string[],
  random: Random,
): { stop(): void } {
  const routes = replicaClients.flatMap(({ replica, clients }) =>
    clients.map((client) => ({ replica, client, inFlight: 0, limit: maxInFlight, pausedUntil: 0 })),
  );
  type Route = (typeof routes)[number];
  let due = 0;
  let last = performance.now();
  let stopped = false;

  function send(route: Route, call: Call): void {
    route.inFlight++;
    add(tally.callsByProtocol, route.client.name);
    const begin = performance.now();
    route.client.call(call.request, (result) => {
      route.inFlight--;
      if (stopped) return;
      const end = performance.now();
      if (result.kind === "unavailable" || result.kind === "unsent") {
        route.pausedUntil = end + pauseMs;
        route.limit = 1;
        return add(tally.unavailable, result.kind === "unsent" ? "not connected" : result.why);
      }
      route.limit = maxInFlight;
      const { outcome, observations } = call.read(result);
      tally.checked++;
      if (activeFaults().length > 0) tally.checkedDuringFaults++;
      add(tally.results, outcome);
      if (observations === undefined) return add(tally.unexpected, `${call.request.operation}: ${outcome}`);
      const { replica, client } = route;
      const label = `${call.request.operation} over ${client.name} on ${replica.describe()}: ${outcome}`;
      const checkedCall = { begin: replica.suspends.effectiveBegin(begin), end, label };
      recordViolations(tally, checkCall(checkedCall, observations), activeFaults());
    });
  }

  const timer = setInterval(() => {
    const now = performance.now();
    // Missed calls are dropped. A burst to catch up would be another fault.
    due = Math.min(due + ((now - last) * callsPerSecond) / 1_000, callsPerSecond / 10);
    last = now;
    const available = routes.filter(({ inFlight, limit, pausedUntil }) => inFlight < limit && pausedUntil <= now);
    for (; due >= 1 && available.length > 0; due--) {
      const route = random.pick(available);
      const call = source.next();
      if (call === undefined) return;
      send(route, call);
      if (route.inFlight >= route.limit) available.splice(available.indexOf(route), 1);
    }
  }, tickMs);

  return {
    stop() {
      stopped = true;
      clearInterval(timer);
    },
  };
}
