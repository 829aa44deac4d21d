/** Shares the turns of the event loop between tenants. */
export interface TurnShares {
  /** Opens the queue of a stream. */
  openQueue(options: MessageQueueOptions): MessageQueue;
}

export interface MessageQueueOptions {
  /** Processes a message. */
  readonly process: (framed: Buffer) => void;
  /** Called when messages begin to wait, and when none waits any more. */
  readonly onWait: () => void;
  readonly onDrain: () => void;
}

/** The messages of a stream. They are processed in order, as soon as the share of the tenant allows it. */
export interface MessageQueue {
  push(framed: Buffer): void;
  /** Begins to process messages: the tenant is known. */
  begin(tenant: string): void;
  /** Drops all messages. */
  clear(): void;
  readonly isEmpty: boolean;
  /** The memory of the waiting messages. */
  readonly bytes: number;
}

interface Waiting {
  readonly tenant: string;
  /** The size of the first message. */
  nextBytes(): number;
  /** Processes the first message. Returns whether more of them wait. */
  processOne(): boolean;
}

/** The memory of a waiting message beyond its bytes. */
const messageOverheadBytes = 400;

/** A longer message counts as several of this size. */
const shortMessageBytes = 100;

/**
 * Limits how many messages of one tenant are processed in one turn. One stream brings any number of messages, so the
 * limits of calls do not limit it. The rest waits for the next turns, in which each stream has its turn, too.
 */
export function createTurnShares(maxPerTurn: number): TurnShares {
  const taken = new Map<string, number>();
  let waiting: Waiting[] = [];
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
      const next: Waiting[] = [];
      for (const stream of round) {
        if (!take(stream.tenant, stream.nextBytes())) waiting.push(stream);
        else if (stream.processOne()) next.push(stream);
      }
      round = next;
    }
    if (waiting.length > 0) schedule();
  }

  /** Whether a message of this tenant may be processed in this turn. If so, it counts. */
  function take(tenant: string, bytes: number): boolean {
    const count = taken.get(tenant) ?? 0;
    if (count >= maxPerTurn) return false;
    taken.set(tenant, count + Math.max(1, bytes / shortMessageBytes));
    schedule();
    return true;
  }

  return {
    openQueue({ process, onWait, onDrain }) {
      let messages: Buffer[] = [];
      let bytes = 0;
      let tenant: string | undefined;

      function processOne(): boolean {
        const framed = messages.shift();
        if (framed === undefined) return false;
        bytes -= framed.length + messageOverheadBytes;
        process(framed);
        if (messages.length > 0) return true;
        onDrain();
        return false;
      }

      function wait(): void {
        if (tenant === undefined) return;
        waiting.push({ tenant, nextBytes: () => messages[0]?.length ?? 0, processOne });
        schedule();
      }

      return {
        get isEmpty() {
          return messages.length === 0;
        },
        get bytes() {
          return bytes;
        },
        push(framed) {
          if (messages.length === 0 && tenant !== undefined && take(tenant, framed.length)) {
            process(framed);
            return;
          }
          bytes += framed.length + messageOverheadBytes;
          if (messages.push(framed) === 1) wait();
          onWait();
        },
        begin(ofTenant) {
          tenant = ofTenant;
          if (messages.length > 0) wait();
        },
        clear() {
          messages = [];
          bytes = 0;
        },
      };
    },
  };
}
