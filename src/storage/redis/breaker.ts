/** Passes a server by while it does not answer. */
export interface Breaker {
  /** False while the server is passed by. */
  readonly closed: boolean;
  /**
   * Undefined if the server is passed by, or fails.
   *
   * @param forgives says of which failures it cannot be told whether the server is of use
   */
  run<T>(command: () => Promise<T>, forgives?: (error: unknown) => boolean): Promise<T | undefined>;
  /** Passes the server by from now on, until a probe finds it. */
  trip(cause: unknown): void;
  stop(): void;
}

/** After so many failures in a row the server is passed by. */
const mostFailures = 5;
const probeEveryMs = 100;

/**
 * The server is passed by until a probe has found it. The probes are our own, so that no caller pays for finding out
 * whether the server is back; with the breakers to be had from the registry, every now and then a caller would.
 */
export function createBreaker(
  probe: () => Promise<unknown>,
  onChange: (closed: boolean, cause?: unknown) => void,
): Breaker {
  let failures = 0;
  /** Runs while the server is passed by. */
  let probing: NodeJS.Timeout | undefined;
  let stopped = false;

  function close(): void {
    clearInterval(probing);
    probing = undefined;
    failures = 0;
    onChange(true);
  }

  function trip(cause: unknown): void {
    if (probing !== undefined || stopped) return;
    onChange(false, cause);
    let asked = false;
    probing = setInterval(async () => {
      if (asked) return;
      asked = true;
      const back = await probe().then(
        () => true,
        () => false,
      );
      asked = false;
      if (back && !stopped) close();
    }, probeEveryMs).unref();
  }

  trip(new Error("not connected yet"));
  return {
    get closed() {
      return probing === undefined;
    },
    async run(command, forgives) {
      if (probing !== undefined) return undefined;
      try {
        const answer = await command();
        failures = 0;
        return answer;
      } catch (error) {
        if (forgives?.(error)) return undefined;
        failures += 1;
        if (failures >= mostFailures) trip(error);
        return undefined;
      }
    },
    trip,
    stop() {
      stopped = true;
      clearInterval(probing);
    },
  };
}
