/** The result of one run of load. */
export interface LoadRun {
  readonly calls: number;
  readonly seconds: number;
}

/** A load on one server. Its connections stay open between runs. */
export interface Load {
  /** Sends as fast as responses arrive, for this many seconds. Fails on any unexpected response. */
  run(seconds: number): Promise<LoadRun>;
  close(): void;
}

/** A wrong or missing response. It makes the measurement invalid. */
export class UnexpectedResponse extends Error {
  override readonly name = "UnexpectedResponse";
}

/** Timeout for the calls in flight at the end of a run. */
const drainTimeoutMs = 10_000;

/** Counts the calls of a closed loop: a fixed number is in flight, and each response is followed by the next call. */
export function createClosedLoop() {
  let running = false;
  let calls = 0;
  let inFlight = 0;
  let settle: (error?: Error) => void = () => {};

  return {
    /** Counts an expected response. Returns whether to start the next call. */
    succeeded(): boolean {
      calls++;
      if (running) return true;
      inFlight--;
      if (inFlight === 0) settle();
      return false;
    },

    failed(error: Error): void {
      settle(error);
    },

    /** Keeps `width` calls in flight for this many seconds, then waits for the last responses. */
    async run(seconds: number, width: number, start: () => void): Promise<LoadRun> {
      calls = 0;
      inFlight = width;
      running = true;
      const startedAt = performance.now();
      const endTimer = setTimeout(() => {
        running = false;
      }, seconds * 1_000);
      const onTimeout = () => settle(new UnexpectedResponse("responses are missing: the server is stuck"));
      const drainTimer = setTimeout(onTimeout, seconds * 1_000 + drainTimeoutMs);
      try {
        await new Promise<void>((resolve, reject) => {
          settle = (error) => (error ? reject(error) : resolve());
          start();
        });
        return { calls, seconds: (performance.now() - startedAt) / 1_000 };
      } finally {
        running = false;
        settle = () => {};
        clearTimeout(endTimer);
        clearTimeout(drainTimer);
      }
    },
  };
}
