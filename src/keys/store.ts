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
  type Sql,
  type Statement,
  textArrayParameter,
} from "../storage/postgres/connection.js";
import { pageOf, readScannedPage, type ScannedPage, scannedPageOf } from "../storage/postgres/paging.js";
import { readOne, run, runForAll } from "../storage/postgres/query.js";
import { patiently } from "../storage/postgres/statement.js";

/** A key about to be stored. */
export interface NewKey {
  readonly keyId: string;
  readonly workspaceId: string;
  /** Of its secret, in hex. */
  readonly hash: string;
  readonly start: string;
  readonly name: string | null;
  readonly enabled: boolean;
  /** What it may do with this service. */
  readonly scopes: readonly string[];
  /** What it may do in the user's own application. */
  readonly permissions: readonly string[];
  readonly meta: JsonObject | null;
  readonly expiresAt: Date | null;
}

/** A key as it can be read back, with its identity beside it. */
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

/** What an update changes; what is undefined stays. */
export interface KeyChanges {
  readonly name?: string | null;
  readonly enabled?: boolean;
  readonly scopes?: readonly string[];
  readonly permissions?: readonly string[];
  readonly meta?: JsonObject | null;
  readonly expiresAt?: Date | null;
  /** Null takes the identity off the key. */
  readonly owner?: Owner | null;
}

/** Who is to own a key: an identity that is there, or one that is stored with the key unless it is there. */
export type Owner =
  | { readonly kind: "existing"; readonly identityId: string }
  | { readonly kind: "named"; readonly identity: NewIdentity };

/** What a change of a key is judged by. */
export interface KeyVersion
  extends Pick<NewKey, "keyId" | "workspaceId" | "start" | "enabled" | "scopes" | "expiresAt"> {
  /** The expiry that it was given as a setting: a reroll may have ended it earlier. */
  readonly configuredExpiresAt: Date | null;
  /** Whether that has passed. */
  readonly expiredAsSet: boolean;
  /** Of its last change: while that is the same, so is all of this. */
  readonly changedXid: string;
}

/** What is new about the key that replaces another. */
export type Successor = Pick<NewKey, "keyId" | "hash" | "start">;

/** Which keys to list; what is undefined is not asked for. */
export interface KeyFilter {
  readonly externalId: string | undefined;
  readonly enabled: boolean | undefined;
}

export type KeysStore = ReturnType<typeof createKeysStore>;

export function createKeysStore(sql: Sql, quotas: Quotas) {
  /** A key may still name an identity that was deleted. */
  const livingIdentities = sql`
    identities on identities.identity_id = keys.identity_id and identities.deleted_at is null`;

  /** The columns of a KeyRow, from `keys` and `identities`. */
  const keyColumns = sql`
    key_id, keys.workspace_id, start, name, enabled, scopes, permissions, keys.meta, expires_at, last_used_at,
    keys.created_at, keys.updated_at, identities.identity_id, external_id, identities.meta as identity_meta,
    identities.created_at as identity_created_at, identities.updated_at as identity_updated_at`;

  /** The living keys that the condition tells of. */
  const select = (condition: Fragment) => sql<KeyRow[]>`
    select ${keyColumns} from keys left join ${livingIdentities}
    where keys.deleted_at is null and ${condition}`;

  /**
   * A key under lock, as the part of a statement that other parts call `before`; none if it has changed since it was seen.
   * An identity that was deleted is taken off, to be written with the change. One that was not is locked.
   */
  const locked = ({ workspaceId, keyId, changedXid }: KeyVersion) => sql`
    select case when (before).identity_id is null or lock_live_identity((before).identity_id) is not null then before
      else jsonb_populate_record(before, '{"identity_id": null}') end as before
    from (
      select keys as before from keys
      where workspace_id = ${workspaceId} and key_id = ${keyId} and deleted_at is null
        and changed_xid = ${changedXid}::xid8 for update) as found`;

  /** In a statement that has asked for it in the part called `room`. */
  const hasRoom = sql`reached is null`;

  /** The expiry that a key was given as a setting. */
  const configuredExpiresAt = sql`nullif(coalesce(configured_expires_at, expires_at), 'infinity')`;

  return {
    /** False if the owner does not exist; then nothing is stored. */
    async insertKey(
      call: Call,
      key: NewKey,
      owner: Owner | undefined,
      by: Actor,
      answer: IdempotencyRecord | undefined,
    ): Promise<boolean> {
      const growth = { keys: true, identities: isNew(sql, owner) };
      const ownerId = owner
        ? sql`select identity_id from owner, room where ${hasRoom}`
        : sql`select null from room where ${hasRoom}`;
      const [row] = await run(
        call,
        sql<(QuotaCheck & { created: boolean })[]>`
        with room as (select ${reachedQuota(sql, quotas, key.workspaceId, growth)} as reached),
          ${ownerParts(sql, key.workspaceId, owner, sql`exists (select from room where ${hasRoom})`)}
          ${keyCreation(sql, key, ownerId)},
          events as (${insertAuditEvents(sql, by, ...ownerMade(sql, owner), keyCreated(sql))})
          ${insertIdempotencyRecord(sql, answer, sql`created`)}
        select reached, exists (select from created) as created from room`,
      );
      refuseBeyondQuota(quotas, row);
      return row?.created === true;
    },

    /** One statement, hence one snapshot: no change that it includes is missing. */
    async readKeyRecord(hash: string, call?: Call): Promise<InSnapshot<KeyRecord> | undefined> {
      const [row] = await runForAll(
        call,
        sql<InSnapshot<KeyRecord>[]>`
        select key_id, keys.workspace_id, keys.name, enabled, scopes, permissions, keys.meta, expires_at, ended,
          identities.identity_id,
          external_id, identities.meta as identity_meta, identities.created_at as identity_created_at,
          identities.updated_at as identity_updated_at, disabled_at is null as workspace_enabled,
          pg_current_snapshot()::text as snapshot
        from keys join workspaces using (workspace_id) left join ${livingIdentities}
        where hash = ${bytes(hash)} and keys.deleted_at is null`,
      );
      return row;
    },

    /** Whether a key is good for anything, and the transactions that last changed it and its workspace. */
    async readUsable(keyId: string): Promise<{ usable: boolean; changedBy: number[] } | undefined> {
      const [row] = await sql<{ usable: boolean; changedBy: string[] }[]>`
        select deleted_at is null and enabled and not ended and disabled_at is null as usable,
          array[keys.changed_xid::text, workspaces.changed_xid::text] as changed_by
        from keys join workspaces using (workspace_id) where key_id = ${keyId}`;
      return row && { usable: row.usable, changedBy: row.changedBy.map(Number) };
    },

    async findKey(call: Call, workspaceId: string, keyId: string): Promise<KeyRow | undefined> {
      const [row] = await readOne(call, select(sql`keys.workspace_id = ${workspaceId} and key_id = ${keyId}`));
      return row;
    },

    /** The key as a change of it is judged; the change holds only if the key is still so. */
    async seeKey(call: Call, workspaceId: string, keyId: string, by: Actor): Promise<KeyVersion | undefined> {
      const [row] = await readOne(
        call,
        sql<KeyVersion[]>`
        select key_id, workspace_id, start, enabled, scopes, expires_at, ${configuredExpiresAt} as configured_expires_at,
          coalesce(${configuredExpiresAt} <= clock_timestamp(), false) as expired_as_set, changed_xid::text
        from keys
        where workspace_id = ${workspaceId} and key_id = ${keyId} and deleted_at is null
          and ${callerUnchanged(sql, by.key)}`,
      );
      return row;
    },

    async findKeyByHash(call: Call, workspaceId: string, hash: string): Promise<KeyRow | undefined> {
      const [row] = await readOne(call, select(sql`keys.workspace_id = ${workspaceId} and hash = ${bytes(hash)}`));
      return row;
    },

    async listKeys(
      call: Call,
      workspaceId: string,
      { externalId, enabled }: KeyFilter,
      page: PageRequest,
    ): Promise<ScannedPage<KeyRow>> {
      // As words of the statement: there is an index of those that are disabled.
      const inState = enabled === undefined ? sql`true` : enabled ? sql`enabled` : sql`not enabled`;
      // Not `workspace_id = …`: then the order of all keys would do as well, and if most of them seem to be in this
      // workspace, the planner may walk past all the others first.
      const ofWorkspace = sql`
        (keys.workspace_id, key_id) > (${workspaceId}, ${page.after}) and keys.workspace_id <= ${workspaceId}`;
      const order = sql`workspace_id, key_id`;
      if (externalId === undefined && enabled !== true) {
        const keys = pageOf<KeyRow>(sql, select(sql`${ofWorkspace} and ${inState}`), order, page.limit);
        return { rows: await run(call, keys), scannedTo: undefined };
      }
      // The keys of an identity of this workspace are of this workspace. Those that were deleted are in its index, too.
      const identityId = externalId && idOf(sql, workspaceId, { case: "externalId", value: externalId });
      const behind = identityId
        ? sql`where identity_id = ${identityId} and key_id > ${page.after} order by key_id`
        : sql`where ${ofWorkspace} and deleted_at is null order by ${order}`;
      const keys = scannedPageOf<KeyRow>(sql, {
        rows: sql`select key_id, enabled, deleted_at from keys ${behind}`,
        column: sql`key_id`,
        direction: sql`asc`,
        filter: sql`deleted_at is null and ${inState}`,
        limit: page.limit,
        whole: select(sql`key_id`),
        id: (keyId) => keyId,
      });
      return readScannedPage(await run(call, keys));
    },

    /**
     * The key as it is now. Undefined if its new owner does not exist, or the key has changed since it was seen; then nothing
     * is changed.
     */
    async updateKey(call: Call, seen: KeyVersion, changes: KeyChanges, by: Actor): Promise<KeyRow | undefined> {
      const { owner } = changes;
      const ownerExists = owner ? sql`and exists (select from owner)` : sql``;
      const told = sql`
        select (a.after).workspace_id, (a.after).key_id, audit_snapshot(b.before), audit_snapshot(a.after)
        from before b, after a
        where ${hasChanged(sql)}`;
      const reached = reachedQuota(sql, quotas, seen.workspaceId, { identities: isNew(sql, owner) });
      // The statement does not see an identity in its table that it has just made.
      const identities =
        owner?.kind === "named" ? sql`(select (owner).* from resolved) as identities` : sql`identities`;
      const [row] = await run(
        call,
        sql<(QuotaCheck & (KeyRow | { keyId: null }))[]>`
          with before as (${locked(seen)}),
            room as (select case when not (${takesAway(sql, changes)}) then ${reached} end as reached from before),
            ${ownerParts(sql, seen.workspaceId, owner ?? undefined, sql`exists (select from room where ${hasRoom})`)}
            after as (
              update keys set ${assignments(sql, changes)} from before, room
              where keys.key_id = (before).key_id and ${hasRoom} ${ownerExists} returning keys as after),
            events as (${insertAuditEvents(sql, by, ...ownerMade(sql, owner), ["key.update", told])})
          select reached, ${keyColumns} from room left join (select (after).* from after) as keys on true
            left join ${identities} on identities.identity_id = keys.identity_id and identities.deleted_at is null`,
      );
      refuseBeyondQuota(quotas, row);
      return row === undefined || row.keyId === null ? undefined : row;
    },

    /** False if the key has changed since it was seen; then nothing is deleted. */
    async deleteKey(call: Call, seen: KeyVersion, by: Actor): Promise<boolean> {
      const told = sql`select (gone).workspace_id, (gone).key_id, audit_snapshot(gone), null::json from gone`;
      const gone = await run(
        call,
        sql`
          with before as (${locked(seen)}),
            gone as (
              update keys set deleted_at = now(), identity_id = (before).identity_id from before
              where keys.key_id = (before).key_id returning keys as gone),
            events as (${insertAuditEvents(sql, by, ["key.delete", told])})
          select from gone`,
      );
      return gone.length === 1;
    },

    /**
     * Stores the successor of a key, with the same settings, and ends the old one after `graceMs`, unless it ends earlier
     * anyway. With 0 it has ended. False if the key has changed since it was seen.
     */
    async replaceKey(
      call: Call,
      old: KeyVersion,
      graceMs: number,
      successor: Successor,
      by: Actor,
      answer: IdempotencyRecord | undefined,
    ): Promise<boolean> {
      const reroll = sql`
        select (a.after).workspace_id, (a.after).key_id, audit_snapshot(b.before), audit_snapshot(a.after)
        from before b, after a`;
      // What the last query does not read is run after it: so it reads `after`, or the condition in `events` would come before.
      const creation = sql`select (made).workspace_id, (made).key_id, null::json, audit_snapshot(made) from made`;
      const [row] = await run(
        call,
        sql<(QuotaCheck & { replaced: boolean })[]>`
          with before as (${locked(old)}),
            room as (select ${reachedQuota(sql, quotas, old.workspaceId, { keys: true })} as reached from before),
            after as (
              update keys set expires_at = least(expires_at, now() + ${graceMs}::float8 * interval '1 millisecond'),
                ended = ended or ${graceMs === 0}, updated_at = now(), identity_id = (before).identity_id,
                configured_expires_at = coalesce(configured_expires_at, expires_at, 'infinity')
              from before, room where keys.key_id = (before).key_id and ${hasRoom}
              returning keys as after),
            made as (
              insert into keys (key_id, workspace_id, hash, start, name, enabled, scopes, permissions, identity_id, meta,
                expires_at, created_at, updated_at)
              select ${successor.keyId}, workspace_id, ${bytes(successor.hash)}, ${successor.start}, name, enabled,
                scopes, permissions, identity_id, meta, ${configuredExpiresAt}, now(), now()
              from (select (before).* from before) as b, room where ${hasRoom}
              returning keys as made),
            events as (${insertAuditEvents(sql, by, ["key.create", creation], ["key.reroll", reroll])})
            ${insertIdempotencyRecord(sql, answer, sql`made`)}
          select reached, exists (select from after) and exists (select from made) as replaced from room`,
      );
      refuseBeyondQuota(quotas, row);
      return row?.replaced === true;
    },

    /**
     * When keys were last used; never sets a time back. Keys that are locked are left out, and returned: to wait for one
     * would keep the others of the batch locked, which are of other workspaces.
     */
    async recordUses(uses: ReadonlyMap<string, number>): Promise<string[]> {
      // One text each: hundreds of ids and times are joined in a fraction of the time that their quoting takes.
      const keyIds = [...uses.keys()].join();
      const times = [...uses.values()].join();
      const left = await patiently(sql<{ keyId: string }[]>`
        with used as materialized (
            select key_id, to_timestamp(ms / 1000) as at
            from unnest(string_to_array(${keyIds}, ','), string_to_array(${times}, ',')::float8[]) as used (key_id, ms)),
          locked as (
            select keys.key_id, used.at from keys join used using (key_id) for no key update of keys skip locked),
          stored as (
            update keys set last_used_at = greatest(last_used_at, locked.at) from locked
            where keys.key_id = locked.key_id returning keys.key_id)
        select keys.key_id from keys join used using (key_id) where key_id not in (select key_id from stored)`);
      return left.map(({ keyId }) => keyId);
    },
  };
}

/**
 * The part of a statement that stores a key, called `created`.
 *
 * @param owner selects the identityId of the key's owner; if it selects nothing, no key is stored
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

/** Tells of the key that `keyCreation` stores. */
export function keyCreated(sql: Statement): AuditFact {
  const facts = sql`select (created).workspace_id, (created).key_id, null::json, audit_snapshot(created) from created`;
  return ["key.create", facts];
}

/**
 * The parts of a statement that find the owner or, on this condition, make it; the one called `owner` is empty if there
 * is none.
 */
function ownerParts(sql: Statement, workspaceId: string, owner: Owner | undefined, condition: Fragment): Fragment {
  if (owner === undefined) return sql``;
  if (owner.kind === "existing") {
    const reference = { case: "identityId", value: owner.identityId } as const;
    // Not deleted: asked again, because of a row that was waited for, only this query's own condition is looked at.
    return sql`owner as (
      select identity_id from identities
      where identity_id = ${idOf(sql, workspaceId, reference)} and deleted_at is null for key share),`;
  }
  // An update that changes nothing, so that the row is found and locked even if somebody else is just adding it.
  return sql`
    resolved as (
      ${insertion(sql, owner.identity)} where ${condition}
      on conflict (workspace_id, external_id) where deleted_at is null do update set external_id = excluded.external_id
      returning identities as owner, xmax = 0 as added),
    owner as (select (owner).identity_id from resolved),`;
}

/** Whether the owner will be made, as a condition. */
function isNew(sql: Statement, owner: Owner | undefined | null): Fragment | false {
  if (owner?.kind !== "named") return false;
  const { workspaceId, externalId } = owner.identity;
  return sql`not exists (
    select from identities where workspace_id = ${workspaceId} and external_id = ${externalId} and deleted_at is null)`;
}

/** Tells of the owner, if it was made. */
function ownerMade(sql: Statement, owner: Owner | undefined | null): AuditFact[] {
  if (owner?.kind !== "named") return [];
  const facts = sql`
    select (owner).workspace_id, (owner).identity_id, null::json, audit_snapshot(owner) from resolved where added`;
  return [["identity.create", facts]];
}

function bytes(hex: string): Buffer {
  return Buffer.from(hex, "hex");
}

/**
 * Whether a key ends by being given this expiry: one that has passed is an end, from which on no clock decides. A key that has
 * ended goes on only with a later expiry than it has.
 */
function endedBy(sql: Statement, expiresAt: Date | null): Fragment {
  if (expiresAt === null) return sql`false`;
  return sql`(${expiresAt}::timestamptz <= clock_timestamp() or ended and ${expiresAt}::timestamptz <= expires_at)`;
}

/** Only what changes is assigned. */
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
 * Whether a change only takes something away from the key, as a condition on the one called `before`. No quota is in the way
 * of such a change, so each kind of it can be made a few times at most: otherwise its audit events could grow for ever. So
 * an earlier expiry must at least halve the time that is left, and fewer permissions must be fewer.
 */
function takesAway(sql: Statement, changes: KeyChanges): Fragment {
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
