/** Passes a server by while it does not answer. */
export interface Breaker {
  /** False while the server is passed by. */
  readonly closed: boolean;
  /** Undefined if the server is passed by, or fails. */
  run<T>(command: () => Promise<T>): Promise<T | undefined>;
  stop(): void;
}

/** After so many failures in a row the server is passed by. */
const mostFailures = 5;
const probeEveryMs = 100;

/**
 * The probes are our own, so that no caller pays for finding out whether the server is back; with the breakers to be
 * had from the registry, every now and then a caller would.
 */
export function createBreaker(
  probe: () => Promise<unknown>,
  onChange: (closed: boolean, cause?: unknown) => void,
): Breaker {
  let failures = 0;
  let probing: NodeJS.Timeout | undefined;

  function close(): void {
    clearInterval(probing);
    probing = undefined;
    failures = 0;
    onChange(true);
  }

  function open(cause: unknown): void {
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
      if (back && probing !== undefined) close();
    }, probeEveryMs).unref();
  }

  return {
    get closed() {
      return probing === undefined;
    },
    async run(command) {
      if (probing !== undefined) return undefined;
      try {
        const answer = await command();
        failures = 0;
        return answer;
      } catch (error) {
        failures += 1;
        if (failures >= mostFailures && probing === undefined) open(error);
        return undefined;
      }
    },
    stop: () => clearInterval(probing),
  };
}
