import type { Sql } from "postgres";
import type { Fields } from "../support/clients/unchecked.js";

/** A change as in its audit event: `after` contains the known properties of the resource after the change. */
export interface Change {
  readonly type: string;
  readonly resourceId: string;
  readonly after?: Fields;
}

/** The changes that the service has acknowledged, and must not lose. */
export interface Ledger {
  /** Records acknowledged changes. */
  record(...changes: readonly Change[]): void;
  /** Marks a resource with a change of unknown outcome: it may be one of the resource's last changes, or have no effect. */
  markUncertain(resourceId: string): void;
  /** The texts in the events of these resources may be erased from now on. */
  forgetTexts(...resourceIds: readonly string[]): void;
  /** The number of acknowledged changes. */
  readonly size: number;
  /** Compares the audit events of a database with the ledger; describes missing and unexpected events. */
  compare(sql: Sql): Promise<string[]>;
}

export function createLedger(): Ledger {
  const changes = new Map<string, Change[]>();
  /** The number of such changes of each resource. */
  const uncertain = new Map<string, number>();
  let size = 0;
  return {
    get size() {
      return size;
    },
    record(...recorded) {
      size += recorded.length;
      for (const change of recorded) {
        const known = changes.get(change.resourceId);
        if (known) known.push(change);
        else changes.set(change.resourceId, [change]);
      }
    },
    markUncertain: (resourceId) => void uncertain.set(resourceId, (uncertain.get(resourceId) ?? 0) + 1),
    forgetTexts(...resourceIds) {
      for (const id of resourceIds) {
        const known = changes.get(id)?.map(({ type, resourceId }) => ({ type, resourceId }));
        if (known) changes.set(id, known);
      }
    },
    async compare(sql) {
      const logged = new Map<string, Change[]>();
      const rows = await sql<EventRow[]>`
        select resource_id, json_agg(json_build_object('type', type, 'resourceId', resource_id, 'after', after)
          order by position) as events from audit_events group by resource_id`;
      for (const { resource_id, events } of rows) logged.set(resource_id, events);
      return [...changes].flatMap(([resourceId, acknowledged]) => {
        const events = logged.get(resourceId) ?? [];
        const maxEvents = acknowledged.length + (uncertain.get(resourceId) ?? 0);
        const allMatch = acknowledged.every((change, index) => matches(events[index], change));
        if (allMatch && events.length <= maxEvents) return [];
        return [`acknowledged: ${JSON.stringify(acknowledged)}, logged: ${JSON.stringify(events)}`];
      });
    },
  };
}

interface EventRow {
  readonly resource_id: string;
  readonly events: Change[];
}

function matches(event: Change | undefined, { type, after = {} }: Change): boolean {
  if (event?.type !== type) return false;
  return Object.entries(after).every(([name, value]) => JSON.stringify(event.after?.[name]) === JSON.stringify(value));
}
