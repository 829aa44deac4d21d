import { insertAuditEvents } from "../audit/store.js";
import type { Call, IdempotencyRecord } from "../call/call.js";
import type { Actor } from "../call/context.js";
import {
  type Credits,
  type CreditsChanges,
  changedCredits,
  creditsChange,
  creditsChanged,
  endsCredits,
} from "../credits/store.js";
import { insertIdempotencyRecord } from "../idempotency/store.js";
import { type QuotaCheck, type Quotas, reachedQuota, refuseBeyondQuota } from "../quotas/quotas.js";
import type { Database } from "../storage/postgres/database.js";
import { sql } from "../storage/postgres/sql.js";
import type { KeyVersion } from "./rows.js";
import { lockKey } from "./statement-parts.js";

export type KeyCreditsStore = ReturnType<typeof createKeyCreditsStore>;

export function createKeyCreditsStore(db: Database, quotas: Quotas) {
  return {
    /**
     * Changes the credits of a key, and returns them; null if it needs none. Undefined if the key is no longer at this version;
     * then nothing is changed.
     */
    async updateCredits(
      call: Call,
      version: KeyVersion,
      changes: CreditsChanges | null,
      actor: Actor,
      record: IdempotencyRecord | undefined,
    ): Promise<Credits | null | undefined> {
      const hasCredits = changes !== null;
      const quota = reachedQuota(quotas, version.workspaceId, {});
      const reached = endsCredits(changes) ? sql`null::text` : quota;
      // A change that no quota refuses can be repeated with any number of idempotency keys. Beyond the quota, it is made, but
      // its response is not stored.
      const recorded = sql`after where ${quota} is null`;
      // Spends are made without it. So has_credits is assigned only if it changes, and replicas keep the key cached.
      const assignment = version.hasCredits === hasCredits ? sql`` : sql`, has_credits = ${hasCredits}`;
      const completion = sql`json_build_object('credits', coalesce(${changedCredits}, '{}'))`;
      const [row] = await db.run(
        call,
        sql<(QuotaCheck & { changed: boolean; credits: Credits | null })[]>`
          with before as (${lockKey(version)}),
            quota as (select ${reached} as reached from before),
            after as (
              update keys set updated_at = now() ${assignment} from before, quota
              where keys.key_id = (before).key_id and reached is null returning keys as after),
            ${creditsChange(changes)}
            events as (${insertAuditEvents(actor, creditsChanged)})
            ${insertIdempotencyRecord(record, recorded, completion)}
          select reached, exists (select from after) as changed, ${changedCredits} as credits from quota`,
      );
      refuseBeyondQuota(quotas, row);
      return row?.changed ? row.credits : undefined;
    },
  };
}
