import type { Sql } from "postgres";
import type { Fields } from "./callers.js";

/** A change as its audit event tells it: `after` has what is known of the resource from then on. */
export interface Change {
  readonly type: string;
  readonly resourceId: string;
  readonly after?: Fields;
}

/** What the service has acknowledged, and must not lose. */
export interface Ledger {
  /** These changes were acknowledged. */
  enter(...changes: readonly Change[]): void;
  /** A change of this resource was sent, and nobody knows what became of it: it may be the resource's last, or be none. */
  doubt(resourceId: string): void;
  /** How many changes were acknowledged. */
  readonly size: number;
  /** Holds the events in a database against it; says in words what is missing, and what is too much. */
  compare(sql: Sql): Promise<string[]>;
}

export function createLedger(): Ledger {
  const changes = new Map<string, Change[]>();
  const doubtful = new Set<string>();
  let size = 0;
  return {
    get size() {
      return size;
    },
    enter(...entered) {
      size += entered.length;
      for (const change of entered) {
        const known = changes.get(change.resourceId);
        if (known) known.push(change);
        else changes.set(change.resourceId, [change]);
      }
    },
    doubt: (resourceId) => void doubtful.add(resourceId),
    async compare(sql) {
      const told = new Map<string, Change[]>();
      const rows = await sql<Told[]>`
        select resource_id, json_agg(json_build_object('type', type, 'resourceId', resource_id, 'after', after)
          order by position) as events from audit_events group by resource_id`;
      for (const { resource_id, events } of rows) told.set(resource_id, events);
      return [...changes].flatMap(([resourceId, acknowledged]) => {
        const events = told.get(resourceId) ?? [];
        const most = acknowledged.length + (doubtful.has(resourceId) ? 1 : 0);
        const asTold = acknowledged.every((change, index) => tells(events[index], change));
        if (asTold && events.length <= most) return [];
        return [`acknowledged: ${JSON.stringify(acknowledged)}, told: ${JSON.stringify(events)}`];
      });
    },
  };
}

interface Told {
  readonly resource_id: string;
  readonly events: Change[];
}

function tells(event: Change | undefined, { type, after = {} }: Change): boolean {
  if (event?.type !== type) return false;
  return Object.entries(after).every(([name, value]) => JSON.stringify(event.after?.[name]) === JSON.stringify(value));
}
