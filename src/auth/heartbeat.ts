import { serviceUnavailable } from "../errors.js";
import { answerWithin, type Connections, Silence } from "../storage/connections.js";
import { type Changed, createChangesStore } from "./store.js";

/** Where the lease learns of changes. */
export interface ChangeSource {
  /** Sees to it that a question can be sent at once. */
  connect(): Promise<void>;
  changedSince(epoch: number): Promise<Changed>;
  /** Makes known to all that epochs are counted anew. */
  beginHistory(): Promise<void>;
}

/** How long a connection may take to come about. Twice this, and a caller has still been answered within a second. */
const connectLimitMs = 350;

/** How long an answer may take. */
const answerLimitMs = 300;

/** One connection; the server gives up a little before we do, or questions that wait for a lock would pile up there. */
export const heartbeatLimits = { connections: 1, statementMs: answerLimitMs - 50 };

/**
 * Asks on a connection of its own, each time with a limit. Silence means that Postgres is away, or that the network
 * swallows what is sent; then nobody should go on waiting on other connections either.
 */
export function createHeartbeat(own: Connections, onSilence: () => void): ChangeSource {
  const store = createChangesStore(own.sql);
  let connected = false;

  async function ask<T>(limit: number, question: () => Promise<T>): Promise<T> {
    try {
      const answer = await answerWithin(limit, question());
      connected = true;
      return answer;
    } catch (error) {
      connected = false;
      if (error instanceof Silence) {
        own.renew();
        onSilence();
      }
      throw serviceUnavailable(error);
    }
  }

  return {
    async connect() {
      if (!connected) await ask(connectLimitMs, store.greet);
    },
    beginHistory: () => ask(answerLimitMs, store.beginHistory),
    changedSince: (epoch) => ask(answerLimitMs, () => store.changedSince(epoch)),
  };
}
