import { setTimeout as sleep } from "node:timers/promises";
import { judge } from "./checker.js";
import type { Population } from "./population.js";
import { useSession } from "./session.js";
import { seenOfCaller } from "./subjects.js";
import { keepViolations, type Tally } from "./tally.js";

const lookEveryMs = 500;

/** How long ago an event may have been recorded that is seen only now: its transaction ends with its statement. */
const longestStatementMs = 15_000;

/** How long the server may take from its last look at the caller to the event. */
const slackMs = 50;

interface Effect {
  readonly eventId: string;
  readonly actor: string;
  readonly type: string;
  /** When it was recorded, in milliseconds of the wall clock. */
  readonly at: number;
}

/** Makes the database remember when each event was recorded; those of the service say when its handler ran. */
export async function recordTimes(databaseUrl: string): Promise<void> {
  await useSession(
    databaseUrl,
    (sql) => sql`alter table audit_events add column recorded_at timestamptz default clock_timestamp()`,
  );
}

/**
 * Holds every change that was made with a key against the end of that key, whatever became of its answer: that it was
 * recorded after the end had been acknowledged is a violation, however long it had waited.
 */
export function watchEffects(
  databaseUrl: string,
  population: Population,
  tally: Tally,
  faultsOn: () => readonly string[],
): { stop(): Promise<void> } {
  const known = new Map<string, number>();
  let stopped = false;
  let lastLookAt = performance.now();

  async function look(): Promise<void> {
    const since = Date.now() - longestStatementMs;
    const effects = await useSession(
      databaseUrl,
      (sql) => sql<Effect[]>`
        select event_id as "eventId", actor, type, (extract(epoch from recorded_at) * 1000)::float8 as at
        from audit_events where recorded_at > to_timestamp(${since / 1_000}::float8) and actor <> 'operator'`,
    );
    lastLookAt = performance.now();
    for (const [eventId, at] of known) if (at < since - longestStatementMs) known.delete(eventId);
    const monotonic = performance.now() - Date.now();
    for (const { eventId, actor, type, at } of effects) {
      if (known.has(eventId)) continue;
      known.set(eventId, at);
      const owner = population.ownerOf(actor);
      const observations = owner && seenOfCaller(owner, "accepted", false);
      if (observations === undefined) continue;
      tally.effects++;
      const begin = at + monotonic - slackMs;
      const label = `${type} was recorded (${eventId})`;
      keepViolations(tally, judge({ begin, end: at + monotonic, label }, observations), faultsOn());
    }
  }

  /** The database may be away for a while. */
  async function tryToLook(): Promise<void> {
    await look().catch((error) => {
      if (performance.now() - lastLookAt > longestStatementMs) throw error;
    });
  }

  const running = (async () => {
    while (!stopped) {
      await tryToLook();
      await sleep(lookEveryMs);
    }
    await look();
  })();
  running.catch(() => {}); // told by stop()
  return {
    async stop() {
      stopped = true;
      await running;
    },
  };
}
