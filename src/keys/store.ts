import { type AuditFact, insertAuditEvents, updateFacts } from "../audit/store.js";
import type { Call, IdempotencyRecord } from "../call/call.js";
import type { Actor } from "../call/context.js";
import {
  changedCredits,
  creditsChange,
  creditsChanged,
  creditsCreated,
  creditsCreation,
  creditsInherited,
  creditsOfKey,
  creditsSuccession,
} from "../credits/store.js";
import { apiNotFound } from "../errors.js";
import { insertIdempotencyRecord } from "../idempotency/store.js";
import { idOf } from "../identities/store.js";
import type { PageRequest } from "../pagination.js";
import { type QuotaCheck, type Quotas, reachedQuota, refuseBeyondQuota } from "../quotas/quotas.js";
import { callerUnchanged } from "../revocation/authorized-key.js";
import type { KeyRecord } from "../revocation/key-state.js";
import type { InSnapshot } from "../storage/postgres/connection.js";
import type { Database } from "../storage/postgres/database.js";
import { pageOf, readScannedPage, type ScannedPage, scannedPageOf } from "../storage/postgres/paging.js";
import { type Fragment, sql } from "../storage/postgres/sql.js";
import type { ChangedKey, KeyChanges, KeyFilter, KeyRow, KeyVersion, NewKey, Owner, Successor } from "./rows.js";
import {
  assignments,
  configuredExpiry,
  hashBytes,
  inLiveApi,
  isLiveApi,
  isNewOwner,
  keyColumns,
  keyCreated,
  keyCreation,
  liveRoles,
  lockKey,
  onlyRemoves,
  ownerCreated,
  ownerParts,
  referenceParts,
  refuseUnknownReferences,
  roleNames,
  selectKeys,
  type UnknownReferences,
  withIdentity,
} from "./statement-parts.js";

export type KeysStore = ReturnType<typeof createKeysStore>;

export function createKeysStore(db: Database, quotas: Quotas) {
  async function checkApi(call: Call, workspaceId: string, apiId: string): Promise<void> {
    const [api] = await db.readOne(
      call,
      sql`select from apis where workspace_id = ${workspaceId} and api_id = ${apiId} and deleted_at is null`,
    );
    if (api === undefined) throw apiNotFound();
  }

  return {
    /** False if the owner does not exist. Throws if the API or a role does not exist. Then nothing is stored. */
    async insertKey(
      call: Call,
      key: NewKey,
      owner: Owner | undefined,
      actor: Actor,
      record: IdempotencyRecord | undefined,
    ): Promise<boolean> {
      const growth = { keys: true, identities: isNewOwner(owner) };
      const references = referenceParts(key);
      const ownerId = owner
        ? sql`select identity_id from owner, quota where reached is null and ${references.exist}`
        : sql`select null from quota where reached is null and ${references.exist}`;
      const [row] = await db.run(
        call,
        sql<(QuotaCheck & UnknownReferences & { created: boolean })[]>`
          with quota as (select ${reachedQuota(quotas, key.workspaceId, growth)} as reached),
            ${references.parts}
            ${ownerParts(key.workspaceId, owner, references.exist)}
            ${keyCreation(key, ownerId)}${creditsCreation(key.credits)},
            events as (${insertAuditEvents(actor, ...ownerCreated(owner), keyCreated, ...creditsCreated(key.credits))})
            ${insertIdempotencyRecord(record, sql`created`)}
          select reached, exists (select from created) as created, ${references.unknown} from quota`,
      );
      refuseBeyondQuota(quotas, row);
      refuseUnknownReferences(row);
      return row?.created === true;
    },

    /** One statement has one snapshot: the row includes every change of the snapshot. */
    async readKeyRecord(hash: string, call?: Call): Promise<InSnapshot<KeyRecord> | undefined> {
      const [row] = await db.readShared(
        call,
        sql<InSnapshot<KeyRecord>[]>`
          select key_id, keys.workspace_id, keys.name, enabled, scopes, keys.api_id, role_ids, ${roleNames} as roles,
            case when role_ids = '{}' then keys.permissions else (
              select coalesce(array_agg(permission order by permission), '{}') from (
                select unnest(keys.permissions) union
                select unnest(roles.permissions) from roles where role_id = any (role_ids) and deleted_at is null
              ) as granted (permission)) end as permissions,
            keys.ratelimits, has_credits, keys.meta, expires_at, ended, identities.identity_id, external_id,
            identities.meta as identity_meta, identities.ratelimits as identity_ratelimits,
            identities.created_at as identity_created_at, identities.updated_at as identity_updated_at,
            disabled_at is null as workspace_enabled, has_imports as workspace_has_imports,
            primary_snapshot() as snapshot
          from keys join workspaces using (workspace_id)
            left join apis on apis.api_id = keys.api_id
            ${withIdentity}
          where hash = ${hashBytes(hash)} and keys.deleted_at is null and apis.deleted_at is null
            and workspaces.deleted_at is null`,
      );
      return row;
    },

    /** Whether a key can be used, and the transactions that last changed the key and its workspace. */
    async readUsable(keyId: string): Promise<{ usable: boolean; changedBy: number[] } | undefined> {
      const [row] = await db.runInBackground(
        sql<{ usable: boolean; changedBy: string[] }[]>`
          select keys.deleted_at is null and apis.deleted_at is null and enabled and not ended and disabled_at is null
              as usable,
            array_remove(array[keys.changed_xid::text, workspaces.changed_xid::text, apis.changed_xid::text], null)
              as changed_by
          from keys join workspaces using (workspace_id) left join apis on apis.api_id = keys.api_id
          where key_id = ${keyId}`,
      );
      return row && { usable: row.usable, changedBy: row.changedBy.map(Number) };
    },

    async findKey(call: Call, workspaceId: string, keyId: string): Promise<KeyRow | undefined> {
      const [row] = await db.readOne(call, selectKeys(sql`keys.workspace_id = ${workspaceId} and key_id = ${keyId}`));
      return row;
    },

    /** The version of a key that a change is checked against. The change applies only to this version. */
    async readKeyVersion(
      call: Call,
      workspaceId: string,
      keyId: string,
      actor: Actor,
    ): Promise<KeyVersion | undefined> {
      const [row] = await db.readOne(
        call,
        sql<KeyVersion[]>`
          select key_id, workspace_id, start, enabled, scopes, permissions, ${liveRoles} as roles, expires_at,
            ${configuredExpiry} as configured_expires_at,
            coalesce(${configuredExpiry} <= clock_timestamp(), false) as is_expired, has_credits, changed_xid::text
          from keys
          where workspace_id = ${workspaceId} and key_id = ${keyId} and deleted_at is null and ${inLiveApi}
            and ${callerUnchanged(actor.key)}`,
      );
      return row;
    },

    async findKeyByHash(call: Call, workspaceId: string, hash: string): Promise<KeyRow | undefined> {
      const [row] = await db.readOne(
        call,
        selectKeys(sql`keys.workspace_id = ${workspaceId} and hash = ${hashBytes(hash)}`),
      );
      return row;
    },

    async listKeys(
      call: Call,
      workspaceId: string,
      { apiId, externalId, enabled }: KeyFilter,
      page: PageRequest,
    ): Promise<ScannedPage<KeyRow>> {
      // Literal conditions, not parameters: there is an index of the disabled keys.
      const inState = enabled === undefined ? sql`true` : enabled ? sql`enabled` : sql`not enabled`;
      // Not `workspace_id = …`: the order of all keys would then serve as well, and if most keys seem to be in this
      // workspace, the planner may scan all the others first.
      const inWorkspace = sql`
        (keys.workspace_id, key_id) > (${workspaceId}, ${page.after}) and keys.workspace_id <= ${workspaceId}`;
      const order = sql`workspace_id, key_id`;
      if (apiId === undefined && externalId === undefined && enabled !== true) {
        // Keys of a deleted API, which are not deleted themselves yet, count as scanned: there may be any number of them.
        const all = sql`
          select ${keyColumns(creditsOfKey)}, ${inLiveApi} as is_live from keys ${withIdentity}
          where keys.deleted_at is null and ${inWorkspace} and ${inState}`;
        const scanned = await db.run(call, pageOf<KeyRow & { isLive: boolean }>(all, order, page.limit));
        const scannedTo = scanned.length > page.limit ? scanned.at(-1)?.keyId : undefined;
        return { rows: scanned.filter(({ isLive }) => isLive), scannedTo };
      }
      // The keys of an identity or an API are in its workspace. The indexes over these include deleted keys.
      const identityId = externalId && idOf(workspaceId, { case: "externalId", value: externalId });
      const liveApi = sql`(
        select api_id from apis where workspace_id = ${workspaceId} and api_id = ${apiId ?? null} and deleted_at is null)`;
      // A limit that the planner does not know, and that is not reached: it expects a part of the rows. With that of the scan, it
      // may read and sort all rows of the identity or the API instead.
      const inOrder = (column: Fragment, id: Fragment) => sql`(
        select * from keys where (${column}, key_id) > (${id}, ${page.after}) and ${column} <= ${id}
        order by ${column}, key_id limit (select 1000000)) as keys`;
      const candidates = identityId
        ? inOrder(sql`identity_id`, identityId)
        : apiId === undefined
          ? sql`keys where ${inWorkspace} and deleted_at is null order by ${order}`
          : inOrder(sql`api_id`, liveApi);
      const ofApi = apiId === undefined ? isLiveApi(sql`scanned.api_id`) : sql`api_id = ${liveApi}`;
      const rows = await db.run(
        call,
        scannedPageOf<KeyRow>({
          rows: sql`select key_id, api_id, enabled, deleted_at from ${candidates}`,
          column: sql`key_id`,
          direction: sql`asc`,
          filter: sql`deleted_at is null and ${inState} and ${ofApi}`,
          limit: page.limit,
          whole: selectKeys(sql`key_id`),
          id: (keyId) => keyId,
        }),
      );
      const found = readScannedPage(rows);
      if (apiId !== undefined && found.rows.length === 0) await checkApi(call, workspaceId, apiId);
      return found;
    },

    /**
     * The updated key. Undefined if its new owner does not exist, or the key is no longer at this version or has scopes.
     * Throws if a role does not exist. Then nothing is changed.
     */
    async updateKey(call: Call, changed: ChangedKey, changes: KeyChanges, actor: Actor): Promise<KeyRow | undefined> {
      const { owner, credits } = changes;
      const event = updateFacts(sql`key_id`);
      const reached = reachedQuota(quotas, changed.workspaceId, { identities: isNewOwner(owner) });
      const ownerExists = owner ? sql`and exists (select from owner)` : sql``;
      const references = referenceParts({
        workspaceId: changed.workspaceId,
        roles: changes.roles ?? [],
        apiId: null,
      });
      // A statement does not see an identity in the table that it has just inserted.
      const identities =
        owner?.kind === "named" ? sql`(select (owner).* from resolved) as identities` : sql`identities`;
      const events: AuditFact[] = [...ownerCreated(owner), ["key.update", event]];
      if (credits !== undefined) events.push(creditsChanged);
      const [row] = await db.run(
        call,
        sql<(QuotaCheck & UnknownReferences & (KeyRow | { keyId: null }))[]>`
          with before as (${lockKey(changed)}),
            ${references.parts}
            quota as (select case when not (${onlyRemoves(changes)}) then ${reached} end as reached from before),
            ${ownerParts(changed.workspaceId, owner ?? undefined, references.exist)}
            after as (
              update keys set ${assignments(changes)} from before, quota
              where keys.key_id = (before).key_id and reached is null and ${references.exist} ${ownerExists}
              returning keys as after),
            ${credits === undefined ? sql`` : creditsChange(credits)}
            events as (${insertAuditEvents(actor, ...events)})
          select reached, ${references.unknown},
            ${keyColumns(credits === undefined ? creditsOfKey : changedCredits)}
          from quota left join (select (after).* from after) as keys on true
            left join ${identities} on identities.identity_id = keys.identity_id and identities.deleted_at is null`,
      );
      refuseBeyondQuota(quotas, row);
      refuseUnknownReferences(row);
      return row === undefined || row.keyId === null ? undefined : row;
    },

    /**
     * False if the key is no longer at this version or has scopes; then nothing is deleted.
     *
     * @param erases whether the name and the meta are erased at once, and not with the row
     */
    async deleteKey(call: Call, changed: ChangedKey, erases: boolean, actor: Actor): Promise<boolean> {
      const event = sql`
        select (before).workspace_id, (before).key_id, audit_snapshot(before), null::json from before, deleted`;
      const erasure = erases ? sql`, name = null, meta = null` : sql``;
      const deleted = await db.run(
        call,
        sql`
          with before as (${lockKey(changed)}),
            deleted as (
              update keys set deleted_at = now(), identity_id = (before).identity_id ${erasure} from before
              where keys.key_id = (before).key_id returning keys.key_id),
            events as (${insertAuditEvents(actor, ["key.delete", event])})
          select from deleted`,
      );
      return deleted.length === 1;
    },

    /**
     * Stores the successor of a key, with the same settings, and ends the old key after `graceMs`, unless it ends earlier.
     * With 0 the old key ends at once. False if it is no longer at this version.
     */
    async replaceKey(
      call: Call,
      old: KeyVersion,
      graceMs: number,
      successor: Successor,
      actor: Actor,
      record: IdempotencyRecord | undefined,
    ): Promise<boolean> {
      const reroll = sql`
        select (a.after).workspace_id, (a.after).key_id, audit_snapshot(b.before), audit_snapshot(a.after)
        from before b, after a`;
      const creation = sql`select (made).workspace_id, (made).key_id, null::json, audit_snapshot(made) from made`;
      const events: AuditFact[] = [["key.create", creation]];
      if (old.hasCredits) events.push(creditsInherited);
      events.push(["key.reroll", reroll]);
      // PostgreSQL runs parts that the last query does not read after it, and the last of them first. So the last query reads
      // all parts that may wait for a lock: otherwise the check of the caller in `events` would come before the wait.
      const [row] = await db.run(
        call,
        sql<(QuotaCheck & { replaced: boolean })[]>`
          with before as (${lockKey(old)}),
            quota as (select ${reachedQuota(quotas, old.workspaceId, { keys: true })} as reached from before),
            after as (
              update keys set expires_at = least(expires_at, now() + ${graceMs}::float8 * interval '1 millisecond'),
                ended = ended or ${graceMs === 0}, updated_at = now(), identity_id = (before).identity_id,
                configured_expires_at = coalesce(configured_expires_at, expires_at, 'infinity')
              from before, quota where keys.key_id = (before).key_id and reached is null
              returning keys as after),
            made as (
              insert into keys (key_id, workspace_id, hash, start, name, enabled, scopes, permissions, role_ids, api_id,
                ratelimits, has_credits, identity_id, meta, expires_at, created_at, updated_at)
              select ${successor.keyId}, workspace_id, ${hashBytes(successor.hash)}, ${successor.start}, name, enabled,
                scopes, permissions, role_ids, api_id, ratelimits, has_credits, identity_id, meta, ${configuredExpiry},
                now(), now()
              from (select (before).* from before) as b, quota where reached is null
              returning keys as made),
            ${old.hasCredits ? creditsSuccession : sql``}
            events as (${insertAuditEvents(actor, ...events)})
            ${insertIdempotencyRecord(record, sql`made`)}
          select reached, exists (select from after) and exists (select from made) as replaced
            ${old.hasCredits ? sql`, (select count(*) from created_credits) as credits` : sql``} from quota`,
      );
      refuseBeyondQuota(quotas, row);
      return row?.replaced === true;
    },

    /**
     * Stores when keys were last used. A stored time never decreases. Returns the ids of locked keys, which are left out:
     * to wait for one would keep the other keys of the batch locked, which are in other workspaces.
     */
    async recordUses(uses: ReadonlyMap<string, number>): Promise<string[]> {
      // One text each: joining hundreds of ids and times costs a fraction of quoting them as an array.
      const keyIds = [...uses.keys()].join();
      const times = [...uses.values()].join();
      const left = await db.runInBackground(
        sql<{ keyId: string }[]>`
          with used as materialized (
              select key_id, to_timestamp(ms / 1000) as at
              from unnest(string_to_array(${keyIds}, ','), string_to_array(${times}, ',')::float8[]) as used (key_id, ms)),
            locked as (
              select keys.key_id, used.at from keys join used using (key_id) for no key update of keys skip locked),
            stored as (
              update keys set last_used_at = greatest(last_used_at, locked.at) from locked
              where keys.key_id = locked.key_id returning keys.key_id)
          select keys.key_id from keys join used using (key_id) where key_id not in (select key_id from stored)`,
      );
      return left.map(({ keyId }) => keyId);
    },
  };
}
