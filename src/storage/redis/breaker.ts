/** A circuit breaker: bypasses a server while it fails. */
export interface Breaker {
  /** False while the server is bypassed. */
  readonly closed: boolean;
  /**
   * Undefined if the server is bypassed, or the command fails.
   *
   * @param isHarmless whether an error says nothing about the health of the server
   */
  run<T>(command: () => Promise<T>, isHarmless?: (error: unknown) => boolean): Promise<T | undefined>;
  /** Bypasses the server until a probe succeeds. */
  trip(cause: unknown): void;
  stop(): void;
}

/** The server is bypassed after this many consecutive failures. */
const maxFailures = 5;
const probeIntervalMs = 100;

/**
 * The server is bypassed until a probe succeeds. The probes run in the background, so no call waits for one. The circuit
 * breakers on npm (cockatiel, opossum) probe with the calls of callers.
 */
export function createBreaker(
  probe: () => Promise<unknown>,
  onChange: (closed: boolean, cause?: unknown) => void,
): Breaker {
  let failures = 0;
  /** Runs while the server is bypassed. */
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
    let inFlight = false;
    probing = setInterval(async () => {
      if (inFlight) return;
      inFlight = true;
      const recovered = await probe().then(
        () => true,
        () => false,
      );
      inFlight = false;
      if (recovered && !stopped) close();
    }, probeIntervalMs).unref();
  }

  trip(new Error("not connected yet"));
  return {
    get closed() {
      return probing === undefined;
    },
    async run(command, isHarmless) {
      if (probing !== undefined) return undefined;
      try {
        const response = await command();
        failures = 0;
        return response;
      } catch (error) {
        if (isHarmless?.(error)) return undefined;
        failures += 1;
        if (failures >= maxFailures) trip(error);
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
