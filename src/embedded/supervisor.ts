import { setTimeout as sleep } from "node:timers/promises";
import type { Backend } from "./backend.js";

/** A change of the state of a backend. */
export interface BackendEvent {
  /** `lost`: it exited; `failing`: a restart failed; `back`: it runs again. */
  readonly kind: "lost" | "failing" | "back";
  readonly backend: string;
  readonly reason?: string;
}

/** The delay between two restarts. It doubles after each failure. */
const backoffMs = { first: 100, max: 2_000 };

/**
 * Starts a backend and restarts it whenever it exits unexpectedly. It retries without end, because a missing resource,
 * such as disk space, may become available at any time. Rejects if the first start fails.
 *
 * @param abortSignal aborts when the shutdown begins: from then on, nothing is started
 */
export async function supervise(
  backend: Backend,
  report: (event: BackendEvent) => void,
  abortSignal: AbortSignal,
): Promise<{ stop(): Promise<void> }> {
  let run = await backend.start(abortSignal);
  const supervision = superviseLoop();

  async function superviseLoop(): Promise<void> {
    for (;;) {
      const reason = await run.ended;
      if (abortSignal.aborted) return;
      report({ kind: "lost", backend: backend.name, reason });
      if (!(await restart())) return;
      if (abortSignal.aborted) return run.stop();
      report({ kind: "back", backend: backend.name });
    }
  }

  /** False if the shutdown began. */
  async function restart(): Promise<boolean> {
    for (let delay = backoffMs.first; !abortSignal.aborted; delay = Math.min(delay * 2, backoffMs.max)) {
      try {
        run = await backend.start(abortSignal);
        return true;
      } catch (error) {
        if (abortSignal.aborted) return false;
        // The first failure is not reported, because processes of the previous run may still be exiting.
        const { message } = error as Error;
        if (delay > backoffMs.first) report({ kind: "failing", backend: backend.name, reason: message });
        await sleep(delay, undefined, { signal: abortSignal }).catch(() => {});
      }
    }
    return false;
  }

  return {
    async stop() {
      await run.stop();
      await supervision;
    },
  };
}
