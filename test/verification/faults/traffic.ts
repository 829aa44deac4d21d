import type { ProtocolClient } from "./answer.js";
import type { Call } from "./calls.js";
import { judge } from "./checker.js";
import { openConnectClient } from "./connect-client.js";
import { openGrpcClient } from "./grpc-client.js";
import { openHttpClient } from "./http-client.js";
import type { Random } from "./random.js";
import type { Replica } from "./replica.js";
import { add, keepViolations, type Tally } from "./tally.js";

/** The protocols of one replica. */
export interface Entrance {
  readonly replica: Replica;
  readonly protocols: readonly ProtocolClient[];
}

/** Every way into each of these replicas. */
export function openEntrances(replicas: readonly Replica[]): Entrance[] {
  return replicas.map((replica) => ({ replica, protocols: clientsOf(replica) }));
}

function clientsOf({ grpcPort, httpPort }: Replica): ProtocolClient[] {
  return [openGrpcClient(grpcPort), openHttpClient(httpPort), openConnectClient(httpPort)];
}

/** Where the calls come from: those that tell about the subjects that are there now. */
export interface CallSource {
  next(): Call | undefined;
}

/** Most calls under way through one protocol; a replica that does not answer must not use up the laboratory. */
const mostUnderWay = 12;
const tickMs = 4;

/** A replica that is away says so at once: without a rest, and one call at a time from then on, all would go there. */
const restMs = 50;

/** Makes calls at this rate through all protocols of all replicas and judges each answer. Returns how to stop. */
export function startTraffic(
  entrances: readonly Entrance[],
  callsPerSecond: number,
  source: CallSource,
  tally: Tally,
  faultsOn: () => readonly string[],
  random: Random,
): { stop(): void } {
  const ways = entrances.flatMap(({ replica, protocols }) =>
    protocols.map((protocol) => ({ replica, protocol, underWay: 0, mayHave: mostUnderWay, restsUntil: 0 })),
  );
  type Way = (typeof ways)[number];
  let owed = 0;
  let last = performance.now();
  let stopped = false;

  function make(way: Way, call: Call): void {
    way.underWay++;
    add(tally.callsByProtocol, way.protocol.name);
    const begin = performance.now();
    way.protocol.call(call.request, (answer) => {
      way.underWay--;
      if (stopped) return;
      const end = performance.now();
      if (answer.kind === "unavailable" || answer.kind === "unsent") {
        way.restsUntil = end + restMs;
        way.mayHave = 1;
        return add(tally.unavailable, answer.kind === "unsent" ? "not reached" : answer.why);
      }
      way.mayHave = mostUnderWay;
      const { word, observations } = call.read(answer);
      tally.judged++;
      if (faultsOn().length > 0) tally.judgedWhileFaultsOn++;
      add(tally.words, word);
      if (observations === undefined) return add(tally.unexpected, `${call.request.operation}: ${word}`);
      const { replica, protocol } = way;
      const label = `${call.request.operation} by ${protocol.name} on ${replica.describe()}: ${word}`;
      const judged = { begin: replica.suspends.countsFrom(begin), end, label };
      keepViolations(tally, judge(judged, observations), faultsOn());
    });
  }

  const timer = setInterval(() => {
    const now = performance.now();
    // What could not be made in time is not made up for: a burst would be another fault.
    owed = Math.min(owed + ((now - last) * callsPerSecond) / 1_000, callsPerSecond / 10);
    last = now;
    const open = ways.filter(({ underWay, mayHave, restsUntil }) => underWay < mayHave && restsUntil <= now);
    for (; owed >= 1 && open.length > 0; owed--) {
      const way = random.pick(open);
      const call = source.next();
      if (call === undefined) return;
      make(way, call);
      if (way.underWay >= way.mayHave) open.splice(open.indexOf(way), 1);
    }
  }, tickMs);

  return {
    stop() {
      stopped = true;
      clearInterval(timer);
    },
  };
}
