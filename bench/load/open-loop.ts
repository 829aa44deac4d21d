import { type Asker, type HttpRequest, openAsker } from "./http.js";
import { WrongAnswer } from "./load.js";

export interface OpenLoopOptions {
  readonly port: number;
  /** As many requests can be under way; what comes beyond them waits, and its waiting counts. */
  readonly connections: number;
  readonly next: () => HttpRequest;
}

/** A load that asks on schedule, whether or not answers have come: a server that is slow for a moment is not spared. */
export interface OpenLoop {
  /** Asks so often for so long. Returns the milliseconds from when each call was due until it was answered. */
  run(callsPerSecond: number, seconds: number): Promise<number[]>;
  close(): void;
}

/** How long the answers under way may take when all has been asked. */
const patienceMs = 10_000;

export async function openOpenLoop({ port, connections, next }: OpenLoopOptions): Promise<OpenLoop> {
  const dueOf = new Map<Asker, number>();
  let idle: Asker[] = [];
  let waiting: number[] = [];
  let latencies: number[] = [];
  let failure: Error | undefined;

  function ask(asker: Asker, due: number): void {
    dueOf.set(asker, due);
    asker.ask(next());
  }

  idle = await Promise.all(
    Array.from({ length: connections }, () =>
      openAsker(port, {
        answered(asker) {
          latencies.push(performance.now() - (dueOf.get(asker) ?? 0));
          const due = waiting.shift();
          if (due === undefined) idle.push(asker);
          else ask(asker, due);
        },
        failed(error) {
          failure ??= error;
        },
      }),
    ),
  );
  const askers = [...idle];

  return {
    async run(callsPerSecond, seconds) {
      const calls = Math.round(callsPerSecond * seconds);
      const everyMs = 1_000 / callsPerSecond;
      const startedAt = performance.now();
      latencies = [];
      waiting = [];
      for (let asked = 0; latencies.length < calls && failure === undefined; ) {
        const now = performance.now();
        for (; asked < calls && startedAt + asked * everyMs <= now; asked++) {
          // By turns: a connection on which nothing is asked for long would be cut off.
          const asker = idle.shift();
          const due = startedAt + asked * everyMs;
          if (asker) ask(asker, due);
          else waiting.push(due);
        }
        if (now > startedAt + seconds * 1_000 + patienceMs) failure = new WrongAnswer("answers are missing");
        // Not a timer: those are a millisecond wide, and would send what is due within it at one stroke.
        await new Promise(setImmediate);
      }
      if (failure) throw failure;
      return latencies;
    },
    close() {
      for (const asker of askers) asker.close();
    },
  };
}
