import type { JsonObject } from "@bufbuild/protobuf";
import { type AuditFact, hasChanged, insertAuditEvents } from "../audit/store.js";
import type { Call, IdempotencyRecord } from "../call/call.js";
import type { Actor } from "../call/context.js";
import { insertIdempotencyRecord } from "../idempotency/store.js";
import { idOf, insertion, type NewIdentity } from "../identities/store.js";
import type { PageRequest } from "../pagination.js";
import type { Quotas } from "../quotas/quotas.js";
import { type QuotaCheck, reachedQuota, refuseBeyondQuota } from "../quotas/quotas.js";
import { callerUnchanged } from "../revocation/authorized-key.js";
import type { KeyRecord } from "../revocation/key-state.js";
import {
  type Fragment,
  type InSnapshot,
  jsonParameter,
  type Statement,
  textArrayParameter,
} from "../storage/postgres/connection.js";
import type { Database } from "../storage/postgres/database.js";
import { pageOf, readScannedPage, type ScannedPage, scannedPageOf } from "../storage/postgres/paging.js";

/** A key to be stored. */
export interface NewKey {
  readonly keyId: string;
  readonly workspaceId: string;
  /** SHA-256 of its secret, in hex. */
  readonly hash: string;
  readonly start: string;
  readonly name: string | null;
  readonly enabled: boolean;
  /** What the key may do with this service. */
  readonly scopes: readonly string[];
  /** What the key may do in the user's own application. */
  readonly permissions: readonly string[];
  readonly meta: JsonObject | null;
  readonly expiresAt: Date | null;
}

/** A stored key with its identity. */
export interface KeyRow extends Omit<NewKey, "hash"> {
  readonly createdAt: Date;
  readonly updatedAt: Date;
  readonly lastUsedAt: Date | null;
  readonly identityId: string | null;
  readonly externalId: string;
  readonly identityMeta: JsonObject;
  readonly identityCreatedAt: Date;
  readonly identityUpdatedAt: Date;
}

/** The changes of an update. An undefined field stays as it is. */
export interface KeyChanges {
  readonly name?: string | null;
  readonly enabled?: boolean;
  readonly scopes?: readonly string[];
  readonly permissions?: readonly string[];
  readonly meta?: JsonObject | null;
  readonly expiresAt?: Date | null;
  /** Null removes the identity from the key. */
  readonly owner?: Owner | null;
}

/** The owner of a key: an existing identity, or one that is created with the key if it does not exist. */
export type Owner =
  | { readonly kind: "existing"; readonly identityId: string }
  | { readonly kind: "named"; readonly identity: NewIdentity };

/** The state of a key that a change is checked against. */
export interface KeyVersion
  extends Pick<NewKey, "keyId" | "workspaceId" | "start" | "enabled" | "scopes" | "expiresAt"> {
  /** The expiry that was set: a reroll may have ended the key earlier. */
  readonly configuredExpiresAt: Date | null;
  /** Whether the configured expiry has passed. */
  readonly isExpired: boolean;
  /** The transaction of the last change. While it is the same, so are all fields of this version. */
  readonly changedXid: string;
}

/** The fields of a successor that differ from the key it replaces. */
export type Successor = Pick<NewKey, "keyId" | "hash" | "start">;

/** The keys to list. An undefined field does not filter. */
export interface KeyFilter {
  readonly externalId: string | undefined;
  readonly enabled: boolean | undefined;
}

export type KeysStore = ReturnType<typeof createKeysStore>;

export function createKeysStore(db: Database, quotas: Quotas) {
  return {
    /** False if the owner does not exist; then nothing is stored. */
    async insertKey(
      call: Call,
      key: NewKey,
      owner: Owner | undefined,
      actor: Actor,
      record: IdempotencyRecord | undefined,
    ): Promise<boolean> {
      const [row] = await db.run(call, (sql) => {
        const growth = { keys: true, identities: isNew(sql, owner) };
        const ownerId = owner
          ? sql`select identity_id from owner, quota where reached is null`
          : sql`select null from quota where reached is null`;
        return sql<(QuotaCheck & { created: boolean })[]>`
          with quota as (select ${reachedQuota(sql, quotas, key.workspaceId, growth)} as reached),
            ${ownerParts(sql, key.workspaceId, owner)}
            ${keyCreation(sql, key, ownerId)},
            events as (${insertAuditEvents(sql, actor, ...ownerCreated(sql, owner), keyCreated(sql))})
            ${insertIdempotencyRecord(sql, record, sql`created`)}
          select reached, exists (select from created) as created from quota`;
      });
      refuseBeyondQuota(quotas, row);
      return row?.created === true;
    },

    /** One statement has one snapshot: the row includes every change of the snapshot. */
    async readKeyRecord(hash: string, call?: Call): Promise<InSnapshot<KeyRecord> | undefined> {
      const [row] = await db.readShared(
        call,
        (sql) => sql<InSnapshot<KeyRecord>[]>`
        select key_id, keys.workspace_id, keys.name, enabled, scopes, permissions, keys.meta, expires_at, ended,
          identities.identity_id,
          external_id, identities.meta as identity_meta, identities.created_at as identity_created_at,
          identities.updated_at as identity_updated_at, disabled_at is null as workspace_enabled,
          pg_current_snapshot()::text as snapshot
        from keys join workspaces using (workspace_id)
          left join identities on identities.identity_id = keys.identity_id and identities.deleted_at is null
        where hash = ${bytes(hash)} and keys.deleted_at is null`,
      );
      return row;
    },

    /** Whether a key can be used, and the transactions that last changed the key and its workspace. */
    async readUsable(keyId: string): Promise<{ usable: boolean; changedBy: number[] } | undefined> {
      const [row] = await db.runInBackground(
        (sql) => sql<{ usable: boolean; changedBy: string[] }[]>`
        select deleted_at is null and enabled and not ended and disabled_at is null as usable,
          array[keys.changed_xid::text, workspaces.changed_xid::text] as changed_by
        from keys join workspaces using (workspace_id) where key_id = ${keyId}`,
      );
      return row && { usable: row.usable, changedBy: row.changedBy.map(Number) };
    },

    async findKey(call: Call, workspaceId: string, keyId: string): Promise<KeyRow | undefined> {
      const [row] = await db.readOne(call, (sql) =>
        select(sql, sql`keys.workspace_id = ${workspaceId} and key_id = ${keyId}`),
      );
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
        (sql) => sql<KeyVersion[]>`
        select key_id, workspace_id, start, enabled, scopes, expires_at,
          ${configuredExpiry(sql)} as configured_expires_at,
          coalesce(${configuredExpiry(sql)} <= clock_timestamp(), false) as is_expired, changed_xid::text
        from keys
        where workspace_id = ${workspaceId} and key_id = ${keyId} and deleted_at is null
          and ${callerUnchanged(sql, actor.key)}`,
      );
      return row;
    },

    async findKeyByHash(call: Call, workspaceId: string, hash: string): Promise<KeyRow | undefined> {
      const [row] = await db.readOne(call, (sql) =>
        select(sql, sql`keys.workspace_id = ${workspaceId} and hash = ${bytes(hash)}`),
      );
      return row;
    },

    async listKeys(
      call: Call,
      workspaceId: string,
      { externalId, enabled }: KeyFilter,
      page: PageRequest,
    ): Promise<ScannedPage<KeyRow>> {
      // Literal conditions, not parameters: there is an index of the disabled keys.
      const inState = (sql: Statement) =>
        enabled === undefined ? sql`true` : enabled ? sql`enabled` : sql`not enabled`;
      // Not `workspace_id = …`: the order of all keys would then serve as well, and if most keys seem to be in this
      // workspace, the planner may scan all the others first.
      const inWorkspace = (sql: Statement) => sql`
        (keys.workspace_id, key_id) > (${workspaceId}, ${page.after}) and keys.workspace_id <= ${workspaceId}`;
      const order = (sql: Statement) => sql`workspace_id, key_id`;
      if (externalId === undefined && enabled !== true) {
        const rows = await db.run(call, (sql) =>
          pageOf<KeyRow>(sql, select(sql, sql`${inWorkspace(sql)} and ${inState(sql)}`), order(sql), page.limit),
        );
        return { rows, scannedTo: undefined };
      }
      const rows = await db.run(call, (sql) => {
        // The keys of an identity are in its workspace. The index over identities includes deleted keys.
        const identityId = externalId && idOf(sql, workspaceId, { case: "externalId", value: externalId });
        const candidates = identityId
          ? sql`where identity_id = ${identityId} and key_id > ${page.after} order by key_id`
          : sql`where ${inWorkspace(sql)} and deleted_at is null order by ${order(sql)}`;
        return scannedPageOf<KeyRow>(sql, {
          rows: sql`select key_id, enabled, deleted_at from keys ${candidates}`,
          column: sql`key_id`,
          direction: sql`asc`,
          filter: sql`deleted_at is null and ${inState(sql)}`,
          limit: page.limit,
          whole: select(sql, sql`key_id`),
          id: (keyId) => keyId,
        });
      });
      return readScannedPage(rows);
    },

    /**
     * The updated key. Undefined if its new owner does not exist, or the key is no longer at this version; then nothing is
     * changed.
     */
    async updateKey(call: Call, version: KeyVersion, changes: KeyChanges, actor: Actor): Promise<KeyRow | undefined> {
      const { owner } = changes;
      const [row] = await db.run(call, (sql) => {
        const event = sql`
          select (a.after).workspace_id, (a.after).key_id, audit_snapshot(b.before), audit_snapshot(a.after)
          from before b, after a
          where ${hasChanged(sql)}`;
        const reached = reachedQuota(sql, quotas, version.workspaceId, { identities: isNew(sql, owner) });
        const ownerExists = owner ? sql`and exists (select from owner)` : sql``;
        // A statement does not see an identity in the table that it has just inserted.
        const identities =
          owner?.kind === "named" ? sql`(select (owner).* from resolved) as identities` : sql`identities`;
        return sql<(QuotaCheck & (KeyRow | { keyId: null }))[]>`
          with before as (${lockVersion(sql, version)}),
            quota as (select case when not (${onlyRemoves(sql, changes)}) then ${reached} end as reached from before),
            ${ownerParts(sql, version.workspaceId, owner ?? undefined)}
            after as (
              update keys set ${assignments(sql, changes)} from before, quota
              where keys.key_id = (before).key_id and reached is null ${ownerExists} returning keys as after),
            events as (${insertAuditEvents(sql, actor, ...ownerCreated(sql, owner), ["key.update", event])})
          select reached, ${keyColumns(sql)} from quota left join (select (after).* from after) as keys on true
            left join ${identities} on identities.identity_id = keys.identity_id and identities.deleted_at is null`;
      });
      refuseBeyondQuota(quotas, row);
      return row === undefined || row.keyId === null ? undefined : row;
    },

    /** False if the key is no longer at this version; then nothing is deleted. */
    async deleteKey(call: Call, version: KeyVersion, actor: Actor): Promise<boolean> {
      const deleted = await db.run(call, (sql) => {
        const event = sql`
          select (deleted).workspace_id, (deleted).key_id, audit_snapshot(deleted), null::json from deleted`;
        return sql`
          with before as (${lockVersion(sql, version)}),
            deleted as (
              update keys set deleted_at = now(), identity_id = (before).identity_id from before
              where keys.key_id = (before).key_id returning keys as deleted),
            events as (${insertAuditEvents(sql, actor, ["key.delete", event])})
          select from deleted`;
      });
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
      const [row] = await db.run(call, (sql) => {
        const reroll = sql`
          select (a.after).workspace_id, (a.after).key_id, audit_snapshot(b.before), audit_snapshot(a.after)
          from before b, after a`;
        const creation = sql`select (made).workspace_id, (made).key_id, null::json, audit_snapshot(made) from made`;
        // PostgreSQL runs parts that the last query does not read after it. So the last query reads `after`: otherwise the
        // check of the caller in `events` would run before the change.
        return sql<(QuotaCheck & { replaced: boolean })[]>`
          with before as (${lockVersion(sql, old)}),
            quota as (select ${reachedQuota(sql, quotas, old.workspaceId, { keys: true })} as reached from before),
            after as (
              update keys set expires_at = least(expires_at, now() + ${graceMs}::float8 * interval '1 millisecond'),
                ended = ended or ${graceMs === 0}, updated_at = now(), identity_id = (before).identity_id,
                configured_expires_at = coalesce(configured_expires_at, expires_at, 'infinity')
              from before, quota where keys.key_id = (before).key_id and reached is null
              returning keys as after),
            made as (
              insert into keys (key_id, workspace_id, hash, start, name, enabled, scopes, permissions, identity_id, meta,
                expires_at, created_at, updated_at)
              select ${successor.keyId}, workspace_id, ${bytes(successor.hash)}, ${successor.start}, name, enabled,
                scopes, permissions, identity_id, meta, ${configuredExpiry(sql)}, now(), now()
              from (select (before).* from before) as b, quota where reached is null
              returning keys as made),
            events as (${insertAuditEvents(sql, actor, ["key.create", creation], ["key.reroll", reroll])})
            ${insertIdempotencyRecord(sql, record, sql`made`)}
          select reached, exists (select from after) and exists (select from made) as replaced from quota`;
      });
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
        (sql) => sql<{ keyId: string }[]>`
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

/** The columns of a KeyRow, from `keys` and `identities`. */
function keyColumns(sql: Statement): Fragment {
  return sql`
    key_id, keys.workspace_id, start, name, enabled, scopes, permissions, keys.meta, expires_at, last_used_at,
    keys.created_at, keys.updated_at, identities.identity_id, external_id, identities.meta as identity_meta,
    identities.created_at as identity_created_at, identities.updated_at as identity_updated_at`;
}

/** Keys that are not deleted. A key may still refer to an identity that was deleted. */
function select(sql: Statement, condition: Fragment) {
  return sql<KeyRow[]>`
    select ${keyColumns(sql)} from keys
      left join identities on identities.identity_id = keys.identity_id and identities.deleted_at is null
    where keys.deleted_at is null and ${condition}`;
}

/**
 * Locks a key, as the part of a statement called `before`. Empty if the key is no longer at this version. The part locks the
 * identity of the key, too. An identity that was deleted is removed from the row, to be written with the change.
 */
function lockVersion(sql: Statement, { workspaceId, keyId, changedXid }: KeyVersion): Fragment {
  return sql`
    select case when (before).identity_id is null or lock_live_identity((before).identity_id) is not null then before
      else jsonb_populate_record(before, '{"identity_id": null}') end as before
    from (
      select keys as before from keys
      where workspace_id = ${workspaceId} and key_id = ${keyId} and deleted_at is null
        and changed_xid = ${changedXid}::xid8 for update) as found`;
}

/** The expiry that was set for a key: a reroll may have ended it earlier. */
function configuredExpiry(sql: Statement): Fragment {
  return sql`nullif(coalesce(configured_expires_at, expires_at), 'infinity')`;
}

/**
 * The part `created` of a statement, which inserts a key.
 *
 * @param owner selects the identityId of the key's owner; if it selects no row, no key is inserted
 */
export function keyCreation(sql: Statement, key: NewKey, owner: Fragment): Fragment {
  return sql`
    created as (
      insert into keys (key_id, workspace_id, hash, start, name, enabled, scopes, permissions, identity_id, meta,
        expires_at, created_at, updated_at)
      select ${key.keyId}, ${key.workspaceId}, ${bytes(key.hash)}::bytea, ${key.start}, ${key.name}, ${key.enabled}::boolean,
        ${textArrayParameter(sql, key.scopes)}, ${textArrayParameter(sql, key.permissions)}, owner.*, ${key.meta && jsonParameter(sql, key.meta)}::json,
        ${key.expiresAt}::timestamptz, now(), now()
      from (${owner}) as owner
      returning keys as created)`;
}

/** The event of the key that `keyCreation` inserts. */
export function keyCreated(sql: Statement): AuditFact {
  const facts = sql`select (created).workspace_id, (created).key_id, null::json, audit_snapshot(created) from created`;
  return ["key.create", facts];
}

/**
 * The parts of a statement that find the owner or, if the part `quota` allows it, insert it. The part `owner` is empty if
 * there is none.
 */
function ownerParts(sql: Statement, workspaceId: string, owner: Owner | undefined): Fragment {
  if (owner === undefined) return sql``;
  if (owner.kind === "existing") {
    const reference = { case: "identityId", value: owner.identityId } as const;
    // The condition on deleted_at is repeated here: after waiting for a lock, PostgreSQL checks only this query's own.
    return sql`owner as (
      select identity_id from identities
      where identity_id = ${idOf(sql, workspaceId, reference)} and deleted_at is null for key share),`;
  }
  // An update that changes nothing: it finds and locks the row even if a concurrent statement is inserting it.
  return sql`
    resolved as (
      ${insertion(sql, owner.identity)} where exists (select from quota where reached is null)
      on conflict (workspace_id, external_id) where deleted_at is null do update set external_id = excluded.external_id
      returning identities as owner, xmax = 0 as added),
    owner as (select (owner).identity_id from resolved),`;
}

/** The condition that the owner will be inserted. */
function isNew(sql: Statement, owner: Owner | undefined | null): Fragment | false {
  if (owner?.kind !== "named") return false;
  const { workspaceId, externalId } = owner.identity;
  return sql`not exists (
    select from identities where workspace_id = ${workspaceId} and external_id = ${externalId} and deleted_at is null)`;
}

/** The event of an inserted owner. */
function ownerCreated(sql: Statement, owner: Owner | undefined | null): AuditFact[] {
  if (owner?.kind !== "named") return [];
  const facts = sql`
    select (owner).workspace_id, (owner).identity_id, null::json, audit_snapshot(owner) from resolved where added`;
  return [["identity.create", facts]];
}

function bytes(hex: string): Buffer {
  return Buffer.from(hex, "hex");
}

/**
 * Whether a key ends with this expiry. An expiry in the past ends it, and no clock reverses that. A key that has ended is
 * usable again only with a later expiry than its present one.
 */
function endedBy(sql: Statement, expiresAt: Date | null): Fragment {
  if (expiresAt === null) return sql`false`;
  return sql`(${expiresAt}::timestamptz <= clock_timestamp() or ended and ${expiresAt}::timestamptz <= expires_at)`;
}

/** Assigns only the changed columns. */
function assignments(sql: Statement, changes: KeyChanges): Fragment {
  const { name, enabled, scopes, permissions, meta, expiresAt, owner } = changes;
  return [
    name !== undefined && sql`name = ${name}`,
    enabled !== undefined && sql`enabled = ${enabled}`,
    scopes !== undefined && sql`scopes = ${textArrayParameter(sql, scopes)}`,
    permissions !== undefined && sql`permissions = ${textArrayParameter(sql, permissions)}`,
    meta !== undefined && sql`meta = ${meta && jsonParameter(sql, meta)}`,
    expiresAt !== undefined &&
      sql`expires_at = ${expiresAt}, configured_expires_at = null, ended = ${endedBy(sql, expiresAt)}`,
    owner === undefined
      ? sql`identity_id = (before).identity_id`
      : sql`identity_id = ${owner ? sql`(select identity_id from owner)` : null}`,
  ].reduce<Fragment>((all, one) => (one ? sql`${all}, ${one}` : all), sql`updated_at = now()`);
}

/**
 * The condition that a change only removes rights or data from the key `before`. No quota applies to such a change, so each
 * kind can be repeated only a few times: otherwise its audit events could grow without bound. So an earlier expiry must
 * at least halve the remaining time, and a smaller set of permissions must be a proper subset.
 */
function onlyRemoves(sql: Statement, changes: KeyChanges): Fragment {
  const { name, enabled, scopes, permissions, meta, expiresAt, owner } = changes;
  if (enabled === true || name || meta || owner || expiresAt === null) return sql`false`;
  const isPart = (column: Fragment, given: readonly string[]) => sql`
    ((before).${column} = ${textArrayParameter(sql, given)} or (before).${column} @> ${textArrayParameter(sql, given)}
      and cardinality((before).${column}) > cardinality(${textArrayParameter(sql, given)}))`;
  return [
    scopes !== undefined && isPart(sql`scopes`, scopes),
    permissions !== undefined && isPart(sql`permissions`, permissions),
    expiresAt !== undefined &&
      sql`((before).expires_at is null or ${expiresAt}::timestamptz = (before).expires_at
        or ${expiresAt}::timestamptz <= now() + ((before).expires_at - now()) / 2)`,
  ].reduce<Fragment>((all, one) => (one ? sql`${all} and ${one}` : all), sql`true`);
}
