import { answerWithin, type Connections, Silence } from "../storage/postgres.js";
import { type Changed, createChangesStore } from "./store.js";

/** Where the lease learns of changes. */
export interface ChangeSource {
  /** Sees to it that a question can be sent at once. */
  connect(): Promise<void>;
  changedSince(epoch: number): Promise<Changed>;
}

/** How long a connection may take to come about. Twice this, and a caller has still been answered within a second. */
const connectLimitMs = 400;

/**
 * Asks on a connection of its own, each time with a limit. Silence twice in a row means that Postgres is away; then
 * nobody should go on waiting for it on other connections either.
 */
export function createHeartbeat(own: Connections, limitMs: number, onSilence: () => void): ChangeSource {
  const store = createChangesStore(own.sql);
  let connected = false;
  let silences = 0;

  async function ask<T>(limit: number, question: () => Promise<T>): Promise<T> {
    try {
      const answer = await answerWithin(limit, question());
      connected = true;
      silences = 0;
      return answer;
    } catch (error) {
      connected = false;
      if (error instanceof Silence) {
        own.renew();
        silences += 1;
        if (silences > 1) onSilence();
      }
      throw error;
    }
  }

  return {
    async connect() {
      if (!connected) await ask(connectLimitMs, store.greet);
    },
    changedSince: (epoch) => ask(limitMs, () => store.changedSince(epoch)),
  };
}
