import { setTimeout as sleep } from "node:timers/promises";
import type { Backend } from "./backend.js";

/** What became of a backend. */
export interface BackendEvent {
  /** `lost`: it has ended; `failing`: it cannot be started again, for a reason that was not told yet; `back`: it runs. */
  readonly kind: "lost" | "failing" | "back";
  readonly backend: string;
  readonly reason?: string;
}

/** Between two attempts to start it again, at first and at most: after each failure, twice as long. */
const pauseMs = { first: 100, last: 2_000 };

/**
 * Starts a backend and keeps it running: if it ends without having been told to, it is started again, with a patience
 * that does not end. What it lacked, such as room on the disk, may come back at any time. Rejects if the first start fails.
 *
 * @param unwanted says that it is about to be stopped: from then on, nothing is started
 */
export async function supervise(
  backend: Backend,
  tell: (news: BackendEvent) => void,
  unwanted: AbortSignal,
): Promise<{ stop(): Promise<void> }> {
  let run = await backend.start(unwanted);
  const kept = keep();

  async function keep(): Promise<void> {
    for (;;) {
      const reason = await run.ended;
      if (unwanted.aborted) return;
      tell({ kind: "lost", backend: backend.name, reason });
      if (!(await startAgain())) return;
      if (unwanted.aborted) return run.stop();
      tell({ kind: "back", backend: backend.name });
    }
  }

  /** False if it is not wanted any more. */
  async function startAgain(): Promise<boolean> {
    let told = "";
    for (let pause = pauseMs.first; !unwanted.aborted; pause = Math.min(pause * 2, pauseMs.last)) {
      try {
        run = await backend.start(unwanted);
        return true;
      } catch (error) {
        if (unwanted.aborted) return false;
        const { message } = error as Error;
        // At first, processes of the one before may still be about to go. The same with another number is not news.
        const reason = message.replace(/\d+/g, "");
        if (reason !== told && pause > pauseMs.first) {
          told = reason;
          tell({ kind: "failing", backend: backend.name, reason: message });
        }
        await sleep(pause, undefined, { signal: unwanted }).catch(() => {});
      }
    }
    return false;
  }

  return {
    async stop() {
      await run.stop();
      await kept;
    },
  };
}
