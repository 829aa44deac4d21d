/** What a run of load came to. */
export interface LoadRun {
  readonly calls: number;
  readonly seconds: number;
}

/** A load on one server, over connections that stay open from one run to the next. */
export interface Load {
  /** Asks as fast as answers come, for so long. Fails if any answer is not the right one. */
  run(seconds: number): Promise<LoadRun>;
  close(): void;
}

/** An answer that is not the right one, or none: what was measured is worth nothing. */
export class WrongAnswer extends Error {
  override readonly name = "WrongAnswer";
}

/** How long the answers under way may take when a run is over. */
const patienceMs = 10_000;

/** Keeps count of calls of which a fixed number is under way: each answer is followed by the next call. */
export function createClosedLoop() {
  let asking = false;
  let calls = 0;
  let underWay = 0;
  let settle: (error?: Error) => void = () => {};

  return {
    /** Counts a right answer. Says whether the next call is to follow. */
    answered(): boolean {
      calls++;
      if (asking) return true;
      underWay--;
      if (underWay === 0) settle();
      return false;
    },

    failed(error: Error): void {
      settle(error);
    },

    /** Has so many calls under way for so long, then waits for the last answers. */
    async run(seconds: number, width: number, start: () => void): Promise<LoadRun> {
      calls = 0;
      underWay = width;
      asking = true;
      const startedAt = performance.now();
      const end = setTimeout(() => {
        asking = false;
      }, seconds * 1_000);
      const stuck = () => settle(new WrongAnswer("answers are missing: the server is stuck"));
      const patience = setTimeout(stuck, seconds * 1_000 + patienceMs);
      try {
        await new Promise<void>((resolve, reject) => {
          settle = (error) => (error ? reject(error) : resolve());
          start();
        });
        return { calls, seconds: (performance.now() - startedAt) / 1_000 };
      } finally {
        asking = false;
        settle = () => {};
        clearTimeout(end);
        clearTimeout(patience);
      }
    },
  };
}
