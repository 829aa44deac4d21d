import { type HttpConnection, type HttpRequest, openHttpConnection } from "./http.js";
import { UnexpectedResponse } from "./load.js";

export interface OpenLoopOptions {
  readonly port: number;
  /** The maximum of requests in flight. Further requests wait, and the wait counts as latency. */
  readonly connections: number;
  readonly next: () => HttpRequest;
}

/** A load that sends on schedule, whether or not responses have arrived. Slow moments of the server are not hidden. */
export interface OpenLoop {
  /** Sends at this rate for this many seconds. Returns the milliseconds from each call's due time to its response. */
  run(callsPerSecond: number, seconds: number): Promise<number[]>;
  close(): void;
}

/** Timeout for the calls in flight after the last one was sent. */
const drainTimeoutMs = 10_000;

export async function openOpenLoop({ port, connections, next }: OpenLoopOptions): Promise<OpenLoop> {
  const dueTimes = new Map<HttpConnection, number>();
  let idle: HttpConnection[] = [];
  let waiting: number[] = [];
  let latencies: number[] = [];
  let failure: Error | undefined;

  function send(connection: HttpConnection, due: number): void {
    dueTimes.set(connection, due);
    connection.send(next());
  }

  idle = await Promise.all(
    Array.from({ length: connections }, () =>
      openHttpConnection(port, {
        succeeded(connection) {
          latencies.push(performance.now() - (dueTimes.get(connection) ?? 0));
          const due = waiting.shift();
          if (due === undefined) idle.push(connection);
          else send(connection, due);
        },
        failed(error) {
          failure ??= error;
        },
      }),
    ),
  );
  const httpConnections = [...idle];

  return {
    async run(callsPerSecond, seconds) {
      const calls = Math.round(callsPerSecond * seconds);
      const intervalMs = 1_000 / callsPerSecond;
      const startedAt = performance.now();
      latencies = [];
      waiting = [];
      for (let sent = 0; latencies.length < calls && failure === undefined; ) {
        const now = performance.now();
        for (; sent < calls && startedAt + sent * intervalMs <= now; sent++) {
          // Round-robin, because the server closes connections that stay idle for long.
          const connection = idle.shift();
          const due = startedAt + sent * intervalMs;
          if (connection) send(connection, due);
          else waiting.push(due);
        }
        if (now > startedAt + seconds * 1_000 + drainTimeoutMs)
          failure = new UnexpectedResponse("responses are missing");
        // Not a timer: timers have a resolution of 1 ms and would send all calls due within it in one burst.
        await new Promise(setImmediate);
      }
      if (failure) throw failure;
      return latencies;
    },
    close() {
      for (const connection of httpConnections) connection.close();
    },
  };
}
