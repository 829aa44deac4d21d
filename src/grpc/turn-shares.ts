/** A stream whose messages are processed within the share of its tenant. */
export interface SharingStream {
  readonly tenant: string;
  /** Processes the first waiting message. Returns whether more of them wait. */
  processOne(): boolean;
}

/** Shares the turns of the event loop between tenants. */
export interface TurnShares {
  /** Whether a message of this tenant may be processed in this turn. If so, it counts. */
  take(tenant: string): boolean;
  /** Processes the messages of a stream in the next turns. */
  wait(stream: SharingStream): void;
}

/**
 * Limits how many messages of one tenant are processed in one turn. One stream brings any number of messages, so the
 * limits of calls do not limit it. The rest waits for the next turns, in which each stream has its turn, too.
 */
export function createTurnShares(maxPerTurn: number): TurnShares {
  const taken = new Map<string, number>();
  let waiting: SharingStream[] = [];
  let isScheduled = false;

  function schedule(): void {
    if (isScheduled) return;
    isScheduled = true;
    setImmediate(beginTurn);
  }

  function beginTurn(): void {
    isScheduled = false;
    taken.clear();
    let round = waiting;
    waiting = [];
    while (round.length > 0) {
      const next: SharingStream[] = [];
      for (const stream of round) {
        if (!take(stream.tenant)) waiting.push(stream);
        else if (stream.processOne()) next.push(stream);
      }
      round = next;
    }
    if (waiting.length > 0) schedule();
  }

  function take(tenant: string): boolean {
    const count = taken.get(tenant) ?? 0;
    if (count >= maxPerTurn) return false;
    taken.set(tenant, count + 1);
    schedule();
    return true;
  }

  return {
    take,
    wait(stream) {
      waiting.push(stream);
      schedule();
    },
  };
}
