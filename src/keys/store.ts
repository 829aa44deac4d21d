import type { JsonObject } from "@bufbuild/protobuf";
import { type AuditFact, hasChanged, insertAuditEvents } from "../audit/store.js";
import type { Call, IdempotencyRecord } from "../call/call.js";
import type { Actor } from "../call/context.js";
import {
  type Credits,
  type CreditsChanges,
  changedCredits,
  creditsChange,
  creditsChanged,
  creditsCreated,
  creditsCreation,
  creditsInherited,
  creditsOfKey,
  creditsSuccession,
  endsCredits,
} from "../credits/store.js";
import { apiNotFound, roleNotFound } from "../errors.js";
import { insertIdempotencyRecord } from "../idempotency/store.js";
import { idOf, insertion, type NewIdentity } from "../identities/store.js";
import type { PageRequest } from "../pagination.js";
import type { Quotas } from "../quotas/quotas.js";
import { type QuotaCheck, reachedQuota, refuseBeyondQuota } from "../quotas/quotas.js";
import { callerUnchanged } from "../revocation/authorized-key.js";
import type { KeyRecord, RateLimitSettings } from "../revocation/key-state.js";
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
  /** Its roles, by their names or ids. */
  readonly roles: readonly string[];
  readonly apiId: string | null;
  readonly ratelimits: readonly RateLimitSettings[];
  /** Null: its verifications need none. */
  readonly credits: Credits | null;
  readonly meta: JsonObject | null;
  readonly expiresAt: Date | null;
}

/** A stored key with its identity and the names of its roles. */
export interface KeyRow extends Omit<NewKey, "hash"> {
  readonly createdAt: Date;
  readonly updatedAt: Date;
  readonly lastUsedAt: Date | null;
  readonly identityId: string | null;
  readonly externalId: string;
  readonly identityMeta: JsonObject;
  readonly identityRatelimits: readonly RateLimitSettings[];
  readonly identityCreatedAt: Date;
  readonly identityUpdatedAt: Date;
}

/** The changes of an update. An undefined field stays as it is. */
export interface KeyChanges {
  readonly name?: string | null;
  readonly enabled?: boolean;
  readonly scopes?: readonly string[];
  readonly permissions?: readonly string[];
  /** By their names or ids. */
  readonly roles?: readonly string[];
  /** The ids of roles that the key keeps besides `roles`, also if they are being deleted. */
  readonly keptRoleIds?: readonly string[];
  readonly ratelimits?: readonly RateLimitSettings[];
  /** Null: its verifications need none any more. */
  readonly credits?: CreditsChanges | null;
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
  extends Pick<NewKey, "keyId" | "workspaceId" | "start" | "enabled" | "scopes" | "permissions" | "expiresAt"> {
  /** The roles of the key that were not deleted, in the order of `role_ids`. */
  readonly roles: readonly { readonly roleId: string; readonly name: string }[];
  /** The expiry that was set: a reroll may have ended the key earlier. */
  readonly configuredExpiresAt: Date | null;
  /** Whether the configured expiry has passed. */
  readonly isExpired: boolean;
  readonly hasCredits: boolean;
  /** The transaction of the last change. While it is the same, so are all fields of this version but `roles`. */
  readonly changedXid: string;
}

/** The fields of a successor that differ from the key it replaces. */
export type Successor = Pick<NewKey, "keyId" | "hash" | "start">;

/** The keys to list. An undefined field does not filter. */
export interface KeyFilter {
  readonly apiId: string | undefined;
  readonly externalId: string | undefined;
  readonly enabled: boolean | undefined;
}

export type KeysStore = ReturnType<typeof createKeysStore>;

export function createKeysStore(db: Database, quotas: Quotas) {
  async function checkApi(call: Call, workspaceId: string, apiId: string): Promise<void> {
    const [api] = await db.readOne(
      call,
      (sql) => sql`select from apis where workspace_id = ${workspaceId} and api_id = ${apiId} and deleted_at is null`,
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
      const [row] = await db.run(call, (sql) => {
        const growth = { keys: true, identities: isNew(sql, owner) };
        const references = referenceParts(sql, key);
        const ownerId = owner
          ? sql`select identity_id from owner, quota where reached is null and ${references.exist}`
          : sql`select null from quota where reached is null and ${references.exist}`;
        return sql<(QuotaCheck & UnknownReferences & { created: boolean })[]>`
          with quota as (select ${reachedQuota(sql, quotas, key.workspaceId, growth)} as reached),
            ${references.parts}
            ${ownerParts(sql, key.workspaceId, owner, references.exist)}
            ${keyCreation(sql, key, ownerId)}${creditsCreation(sql, key.credits)},
            events as (${insertAuditEvents(sql, actor, ...ownerCreated(sql, owner), keyCreated(sql), ...creditsCreated(sql, key.credits))})
            ${insertIdempotencyRecord(sql, record, sql`created`)}
          select reached, exists (select from created) as created, ${references.unknown} from quota`;
      });
      refuseBeyondQuota(quotas, row);
      refuseUnknownReferences(row);
      return row?.created === true;
    },

    /** One statement has one snapshot: the row includes every change of the snapshot. */
    async readKeyRecord(hash: string, call?: Call): Promise<InSnapshot<KeyRecord> | undefined> {
      const [row] = await db.readShared(
        call,
        (sql) => sql<InSnapshot<KeyRecord>[]>`
        select key_id, keys.workspace_id, keys.name, enabled, scopes, keys.api_id, role_ids, ${roleNames(sql)} as roles,
          case when role_ids = '{}' then keys.permissions else (
            select coalesce(array_agg(permission order by permission), '{}') from (
              select unnest(keys.permissions) union
              select unnest(roles.permissions) from roles where role_id = any (role_ids) and deleted_at is null
            ) as granted (permission)) end as permissions,
          keys.ratelimits, has_credits, keys.meta, expires_at, ended, identities.identity_id, external_id,
          identities.meta as identity_meta, identities.ratelimits as identity_ratelimits,
          identities.created_at as identity_created_at, identities.updated_at as identity_updated_at,
          disabled_at is null as workspace_enabled, has_imports as workspace_has_imports,
          pg_current_snapshot()::text as snapshot
        from keys join workspaces using (workspace_id)
          left join apis on apis.api_id = keys.api_id
          left join identities on identities.identity_id = keys.identity_id and identities.deleted_at is null
        where hash = ${bytes(hash)} and keys.deleted_at is null and apis.deleted_at is null
          and workspaces.deleted_at is null`,
      );
      return row;
    },

    /** Whether a key can be used, and the transactions that last changed the key and its workspace. */
    async readUsable(keyId: string): Promise<{ usable: boolean; changedBy: number[] } | undefined> {
      const [row] = await db.runInBackground(
        (sql) => sql<{ usable: boolean; changedBy: string[] }[]>`
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
        select key_id, workspace_id, start, enabled, scopes, permissions, ${liveRoles(sql)} as roles, expires_at,
          ${configuredExpiry(sql)} as configured_expires_at,
          coalesce(${configuredExpiry(sql)} <= clock_timestamp(), false) as is_expired, has_credits, changed_xid::text
        from keys
        where workspace_id = ${workspaceId} and key_id = ${keyId} and deleted_at is null and ${inLiveApi(sql)}
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
      { apiId, externalId, enabled }: KeyFilter,
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
      if (apiId === undefined && externalId === undefined && enabled !== true) {
        // Keys of a deleted API, which are not deleted themselves yet, count as scanned: there may be any number of them.
        const scanned = await db.run(call, (sql) => {
          const all = sql`
            select ${keyColumns(sql)}, ${inLiveApi(sql)} as is_live from keys ${withIdentity(sql)}
            where keys.deleted_at is null and ${inWorkspace(sql)} and ${inState(sql)}`;
          return pageOf<KeyRow & { isLive: boolean }>(sql, all, order(sql), page.limit);
        });
        const scannedTo = scanned.length > page.limit ? scanned.at(-1)?.keyId : undefined;
        return { rows: scanned.filter(({ isLive }) => isLive), scannedTo };
      }
      const rows = await db.run(call, (sql) => {
        // The keys of an identity or an API are in its workspace. The indexes over these include deleted keys.
        const identityId = externalId && idOf(sql, workspaceId, { case: "externalId", value: externalId });
        const liveApi = sql`(
          select api_id from apis where workspace_id = ${workspaceId} and api_id = ${apiId ?? null} and deleted_at is null)`;
        const candidates = identityId
          ? sql`where identity_id = ${identityId} and key_id > ${page.after} order by key_id`
          : apiId === undefined
            ? sql`where ${inWorkspace(sql)} and deleted_at is null order by ${order(sql)}`
            : sql`where (api_id, key_id) > (${liveApi}, ${page.after}) and api_id <= ${liveApi} order by api_id, key_id`;
        const ofApi = apiId === undefined ? isLiveApi(sql, sql`scanned.api_id`) : sql`api_id = ${liveApi}`;
        return scannedPageOf<KeyRow>(sql, {
          rows: sql`select key_id, api_id, enabled, deleted_at from keys ${candidates}`,
          column: sql`key_id`,
          direction: sql`asc`,
          filter: sql`deleted_at is null and ${inState(sql)} and ${ofApi}`,
          limit: page.limit,
          whole: select(sql, sql`key_id`),
          id: (keyId) => keyId,
        });
      });
      const found = readScannedPage(rows);
      if (apiId !== undefined && found.rows.length === 0) await checkApi(call, workspaceId, apiId);
      return found;
    },

    /**
     * The updated key. Undefined if its new owner does not exist, or the key is no longer at this version. Throws if a role
     * does not exist. Then nothing is changed.
     */
    async updateKey(call: Call, version: KeyVersion, changes: KeyChanges, actor: Actor): Promise<KeyRow | undefined> {
      const { owner, credits } = changes;
      const [row] = await db.run(call, (sql) => {
        const event = sql`
          select (a.after).workspace_id, (a.after).key_id, audit_snapshot(b.before), audit_snapshot(a.after)
          from before b, after a
          where ${hasChanged(sql)}`;
        const reached = reachedQuota(sql, quotas, version.workspaceId, { identities: isNew(sql, owner) });
        const ownerExists = owner ? sql`and exists (select from owner)` : sql``;
        const references = referenceParts(sql, {
          workspaceId: version.workspaceId,
          roles: changes.roles ?? [],
          apiId: null,
        });
        // A statement does not see an identity in the table that it has just inserted.
        const identities =
          owner?.kind === "named" ? sql`(select (owner).* from resolved) as identities` : sql`identities`;
        const events: AuditFact[] = [...ownerCreated(sql, owner), ["key.update", event]];
        if (credits !== undefined) events.push(creditsChanged(sql));
        return sql<(QuotaCheck & UnknownReferences & (KeyRow | { keyId: null }))[]>`
          with before as (${lockVersion(sql, version)}),
            ${references.parts}
            quota as (select case when not (${onlyRemoves(sql, changes)}) then ${reached} end as reached from before),
            ${ownerParts(sql, version.workspaceId, owner ?? undefined, references.exist)}
            after as (
              update keys set ${assignments(sql, changes)} from before, quota
              where keys.key_id = (before).key_id and reached is null and ${references.exist} ${ownerExists}
              returning keys as after),
            ${credits === undefined ? sql`` : creditsChange(sql, credits)}
            events as (${insertAuditEvents(sql, actor, ...events)})
          select reached, ${references.unknown},
            ${keyColumns(sql, credits === undefined ? undefined : changedCredits(sql))} from quota left join (select (after).* from after) as keys on true
            left join ${identities} on identities.identity_id = keys.identity_id and identities.deleted_at is null`;
      });
      refuseBeyondQuota(quotas, row);
      refuseUnknownReferences(row);
      return row === undefined || row.keyId === null ? undefined : row;
    },

    /**
     * False if the key is no longer at this version; then nothing is deleted.
     *
     * @param erases whether the name and the meta are erased at once, and not with the row
     */
    async deleteKey(call: Call, version: KeyVersion, erases: boolean, actor: Actor): Promise<boolean> {
      const deleted = await db.run(call, (sql) => {
        const event = sql`
          select (before).workspace_id, (before).key_id, audit_snapshot(before), null::json from before, deleted`;
        const erasure = erases ? sql`, name = null, meta = null` : sql``;
        return sql`
          with before as (${lockVersion(sql, version)}),
            deleted as (
              update keys set deleted_at = now(), identity_id = (before).identity_id ${erasure} from before
              where keys.key_id = (before).key_id returning keys.key_id),
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
        const events: AuditFact[] = [["key.create", creation]];
        if (old.hasCredits) events.push(creditsInherited(sql));
        events.push(["key.reroll", reroll]);
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
              insert into keys (key_id, workspace_id, hash, start, name, enabled, scopes, permissions, role_ids, api_id,
                ratelimits, has_credits, identity_id, meta, expires_at, created_at, updated_at)
              select ${successor.keyId}, workspace_id, ${bytes(successor.hash)}, ${successor.start}, name, enabled,
                scopes, permissions, role_ids, api_id, ratelimits, has_credits, identity_id, meta, ${configuredExpiry(sql)},
                now(), now()
              from (select (before).* from before) as b, quota where reached is null
              returning keys as made),
            ${old.hasCredits ? creditsSuccession(sql) : sql``}
            events as (${insertAuditEvents(sql, actor, ...events)})
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

/**
 * The columns of a KeyRow, from `keys` and `identities`.
 *
 * @param credits an expression for the credits of the key, if the statement itself has changed them
 */
function keyColumns(sql: Statement, credits: Fragment = creditsOfKey(sql)): Fragment {
  return sql`
    key_id, keys.workspace_id, start, name, enabled, scopes, permissions, ${roleNames(sql)} as roles, keys.api_id,
    keys.ratelimits, ${credits} as credits, keys.meta, expires_at, last_used_at, keys.created_at, keys.updated_at, identities.identity_id,
    external_id, identities.meta as identity_meta, identities.ratelimits as identity_ratelimits,
    identities.created_at as identity_created_at, identities.updated_at as identity_updated_at`;
}

/** The names of the roles of a key, in order. */
function roleNames(sql: Statement): Fragment {
  return sql`
    case when role_ids = '{}' then '{}' else (
      select coalesce(array_agg(roles.name order by roles.name), '{}') from roles
      where role_id = any (role_ids) and deleted_at is null) end`;
}

/** The roles of a key that were not deleted, with their ids and names. */
function liveRoles(sql: Statement): Fragment {
  return sql`
    case when role_ids = '{}' then '[]'::json else (
      select coalesce(json_agg(json_build_object('roleId', role_id, 'name', roles.name) order by position), '[]')
      from unnest(role_ids) with ordinality as given (id, position) join roles on role_id = id
      where roles.deleted_at is null) end`;
}

/** The condition that the API of a key was not deleted, and with it the key. */
function inLiveApi(sql: Statement): Fragment {
  return isLiveApi(sql, sql`keys.api_id`);
}

/**
 * The condition that an API was not deleted, or that there is none. Not with `exists`: for that, the planner may read all APIs
 * of all workspaces into a hash table.
 */
function isLiveApi(sql: Statement, apiId: Fragment): Fragment {
  return sql`(${apiId} is null or (select apis.deleted_at is null from apis where apis.api_id = ${apiId}))`;
}

/** Joins the identity of a key. A key may still refer to an identity that was deleted. */
function withIdentity(sql: Statement): Fragment {
  return sql`left join identities on identities.identity_id = keys.identity_id and identities.deleted_at is null`;
}

/** Keys that are not deleted. */
function select(sql: Statement, condition: Fragment) {
  return sql<KeyRow[]>`
    select ${keyColumns(sql)} from keys ${withIdentity(sql)}
    where keys.deleted_at is null and ${inLiveApi(sql)} and ${condition}`;
}

/**
 * Locks a key, as the part of a statement called `before`. Empty if the key is no longer at this version, or its API was
 * deleted. The part locks the API and the identity of the key, too. An identity that was deleted is removed from the row, to
 * be written with the change.
 */
export function lockVersion(sql: Statement, { workspaceId, keyId, changedXid }: KeyVersion): Fragment {
  return sql`
    select case when (before).identity_id is null or lock_live_identity((before).identity_id) is not null then before
      else jsonb_populate_record(before, '{"identity_id": null}') end as before
    from (
      select keys as before from keys
      where workspace_id = ${workspaceId} and key_id = ${keyId} and deleted_at is null
        and changed_xid = ${changedXid}::xid8 for update) as found
    where (before).api_id is null or lock_live_api((before).api_id) is not null`;
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
      insert into keys (key_id, workspace_id, hash, start, name, enabled, scopes, permissions, role_ids, api_id, ratelimits,
        has_credits, identity_id, meta, expires_at, created_at, updated_at)
      select ${key.keyId}, ${key.workspaceId}, ${bytes(key.hash)}::bytea, ${key.start}, ${key.name}, ${key.enabled}::boolean,
        ${textArrayParameter(sql, key.scopes)}, ${textArrayParameter(sql, key.permissions)}, ${roleIds(sql, key.roles)},
        ${key.apiId}, ${jsonParameter(sql, key.ratelimits)}::json, ${key.credits !== null}::boolean, owner.*, ${key.meta && jsonParameter(sql, key.meta)}::json,
        ${key.expiresAt}::timestamptz, now(), now()
      from (${owner}) as owner
      returning keys as created)`;
}

/** The event of the key that `keyCreation` inserts. */
export function keyCreated(sql: Statement): AuditFact {
  const facts = sql`select (created).workspace_id, (created).key_id, null::json, audit_snapshot(created) from created`;
  return ["key.create", facts];
}

/** The result of a statement with `referenceParts`. */
interface UnknownReferences {
  readonly apiIsUnknown: boolean;
  readonly unknownRole: string | null;
}

/**
 * The parts of a statement that find the API and the roles of a key, and lock them, so that they exist until its end. A
 * role can be given by its name or its id.
 */
function referenceParts(
  sql: Statement,
  { workspaceId, roles, apiId }: Pick<NewKey, "workspaceId" | "roles" | "apiId">,
) {
  const given = textArrayParameter(sql, roles);
  const noRole = roles.length === 0;
  const unknownRole = noRole
    ? sql`null::text`
    : sql`(
      select given from unnest(${given}) as given
      where not exists (select from found_roles where given in (role_id, name)) limit 1)`;
  const apiIsUnknown = apiId === null ? sql`false` : sql`not exists (select from found_api)`;
  const rolePart = sql`found_roles as (${selectRoles(sql, workspaceId, roles)} for key share),`;
  const apiPart = sql`
    found_api as (
      select from apis where workspace_id = ${workspaceId} and api_id = ${apiId} and deleted_at is null for key share),`;
  return {
    parts: sql`${noRole ? sql`` : rolePart}${apiId === null ? sql`` : apiPart}`,
    exist: sql`(${unknownRole} is null and not ${apiIsUnknown})`,
    unknown: sql`${unknownRole} as unknown_role, ${apiIsUnknown} as api_is_unknown`,
  };
}

/** Roles by their names or ids. No name has the form of an id. */
export function selectRoles(sql: Statement, workspaceId: string, given: readonly string[]): Fragment {
  const names = textArrayParameter(sql, given);
  return sql`
    select role_id, name from roles
    where workspace_id = ${workspaceId} and deleted_at is null and (role_id = any (${names}) or name = any (${names}))`;
}

/** Throws if the API or a role does not exist. The statement has then changed nothing. */
function refuseUnknownReferences(found: UnknownReferences | undefined): void {
  if (found?.apiIsUnknown) throw apiNotFound();
  if (found && found.unknownRole !== null) throw roleNotFound(found.unknownRole);
}

/** The ids of the roles that the key keeps, and of those that `referenceParts` found. */
function roleIds(sql: Statement, roles: readonly string[], kept: readonly string[] = []): Fragment {
  const keptIds = textArrayParameter(sql, kept);
  if (roles.length === 0) return sql`${keptIds}::text[]`;
  return sql`(
    ${keptIds}::text[] || (select array_agg(role_id order by role_id) from found_roles where role_id <> all (${keptIds})))`;
}

/**
 * The parts of a statement that find the owner or, if the part `quota` allows it, insert it. The part `owner` is empty if
 * there is none.
 *
 * @param condition under which it is inserted
 */
function ownerParts(sql: Statement, workspaceId: string, owner: Owner | undefined, condition: Fragment): Fragment {
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
      ${insertion(sql, owner.identity)} where exists (select from quota where reached is null) and ${condition}
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
  const { name, enabled, scopes, permissions, roles, keptRoleIds, ratelimits, credits, meta, expiresAt, owner } =
    changes;
  return [
    credits !== undefined && sql`has_credits = ${credits !== null}`,
    roles !== undefined && sql`role_ids = ${roleIds(sql, roles, keptRoleIds)}`,
    ratelimits !== undefined && sql`ratelimits = ${jsonParameter(sql, ratelimits)}`,
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
  const { name, enabled, scopes, permissions, roles, keptRoleIds, ratelimits, credits, meta, expiresAt, owner } =
    changes;
  if (enabled === true || name || meta || owner || expiresAt === null) return sql`false`;
  if (credits !== undefined && !endsCredits(credits)) return sql`false`;
  // Without a rate limit, a key may do more; with other roles, too.
  if (ratelimits || roles?.length) return sql`false`;
  const isPart = (column: Fragment, given: readonly string[]) => sql`
    ((before).${column} = ${textArrayParameter(sql, given)} or (before).${column} @> ${textArrayParameter(sql, given)}
      and cardinality((before).${column}) > cardinality(${textArrayParameter(sql, given)}))`;
  return [
    scopes !== undefined && isPart(sql`scopes`, scopes),
    permissions !== undefined && isPart(sql`permissions`, permissions),
    roles !== undefined && isPart(sql`role_ids`, keptRoleIds ?? []),
    expiresAt !== undefined &&
      sql`((before).expires_at is null or ${expiresAt}::timestamptz = (before).expires_at
        or (before).expires_at > now() and ${expiresAt}::timestamptz <= now() + ((before).expires_at - now()) / 2)`,
  ].reduce<Fragment>((all, one) => (one ? sql`${all} and ${one}` : all), sql`true`);
}
