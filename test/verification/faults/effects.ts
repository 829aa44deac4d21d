import { setTimeout as sleep } from "node:timers/promises";
import { checkCall } from "./checker.js";
import type { Population } from "./population.js";
import { useSession } from "./session.js";
import { observationsOfCaller } from "./subjects.js";
import { recordViolations, type Tally } from "./tally.js";

const pollIntervalMs = 500;

/** The maximum age of an event that a poll can see for the first time: its transaction ends with its statement. */
const maxStatementMs = 15_000;

/** The maximum time from the server's last check of the caller to the event. */
const slackMs = 50;

interface Effect {
  readonly eventId: string;
  readonly actor: string;
  readonly type: string;
  /** When it was recorded, in milliseconds of the wall clock. */
  readonly at: number;
}

/** Adds a column with the time of each insert. The time in the service's own column is that of the handler. */
export async function recordTimes(databaseUrl: string): Promise<void> {
  await useSession(
    databaseUrl,
    (sql) => sql`alter table audit_events add column recorded_at timestamptz default clock_timestamp()`,
  );
}

/**
 * Checks every change that was made with a key against the revocation of that key, whether or not the call got a
 * response. A change that was recorded after the revocation was acknowledged is a violation, however long it had
 * waited.
 */
export function watchEffects(
  databaseUrl: string,
  population: Population,
  tally: Tally,
  activeFaults: () => readonly string[],
): { stop(): Promise<void> } {
  const seen = new Map<string, number>();
  let stopped = false;
  let lastPollAt = performance.now();

  async function poll(): Promise<void> {
    const since = Date.now() - maxStatementMs;
    const effects = await useSession(
      databaseUrl,
      (sql) => sql<Effect[]>`
        select event_id as "eventId", actor, type, (extract(epoch from recorded_at) * 1000)::float8 as at
        from audit_events where recorded_at > to_timestamp(${since / 1_000}::float8) and actor <> 'operator'`,
    );
    lastPollAt = performance.now();
    for (const [eventId, at] of seen) if (at < since - maxStatementMs) seen.delete(eventId);
    const toMonotonic = performance.now() - Date.now();
    for (const { eventId, actor, type, at } of effects) {
      if (seen.has(eventId)) continue;
      seen.set(eventId, at);
      const owner = population.ownerOf(actor);
      const observations = owner && observationsOfCaller(owner, "accepted", false);
      if (observations === undefined) continue;
      tally.effects++;
      const begin = at + toMonotonic - slackMs;
      const label = `${type} was recorded (${eventId})`;
      recordViolations(tally, checkCall({ begin, end: at + toMonotonic, label }, observations), activeFaults());
    }
  }

  /** Tolerates a database that is unavailable for a while. */
  async function tryToPoll(): Promise<void> {
    await poll().catch((error) => {
      if (performance.now() - lastPollAt > maxStatementMs) throw error;
    });
  }

  const running = (async () => {
    while (!stopped) {
      await tryToPoll();
      await sleep(pollIntervalMs);
    }
    await poll();
  })();
  running.catch(() => {}); // stop() rejects with the error
  return {
    async stop() {
      stopped = true;
      await running;
    },
  };
}
