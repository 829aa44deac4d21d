import type { JsonObject } from "@bufbuild/protobuf";
import { type Author, events, isChange, type Told } from "../audit/store.js";
import type { Call, KeptAnswer } from "../call.js";
import { idOf, insertion, type NewIdentity } from "../identities/store.js";
import { keeping } from "../once/store.js";
import type { PageRequest } from "../page.js";
import { pageOf } from "../storage/pages.js";
import { type Fragment, jsonText, type Snapshot, type Sql, type Statement, words } from "../storage/postgres.js";
import { run, runForAll } from "../storage/run.js";
import { patiently } from "../storage/statements.js";

/** A key about to be stored. */
export interface NewKey {
  readonly keyId: string;
  readonly workspaceId: string;
  /** Of its secret, in hex. */
  readonly hash: string;
  readonly start: string;
  readonly name: string | null;
  readonly enabled: boolean;
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
export interface SeenKey
  extends Pick<NewKey, "keyId" | "workspaceId" | "start" | "enabled" | "permissions" | "expiresAt"> {
  /** The expiry that it was given as a setting: a reroll may have ended it earlier. */
  readonly expiresAsSet: Date | null;
  /** Of its last change: while that is the same, so is all of this. */
  readonly changedEpoch: bigint;
}

/** What is new about the key that replaces another. */
export type Successor = Pick<NewKey, "keyId" | "hash" | "start">;

/** What a bearer is judged by, and what is told about a key that was verified. */
export interface KeyStanding extends Omit<KeyRow, "start" | "createdAt" | "updatedAt" | "lastUsedAt"> {
  readonly workspaceEnabled: boolean;
}

/** Which keys to list; what is undefined is not asked for. */
export interface KeyFilter {
  readonly externalId: string | undefined;
  readonly enabled: boolean | undefined;
}

export type KeysStore = ReturnType<typeof createKeysStore>;

export function createKeysStore(sql: Sql) {
  /** The living keys that the condition tells of. */
  const select = (condition: Fragment) => sql<KeyRow[]>`
    select key_id, keys.workspace_id, start, name, enabled, permissions, keys.meta, expires_at, last_used_at,
      keys.created_at, keys.updated_at, identity_id, external_id, identities.meta as identity_meta,
      identities.created_at as identity_created_at, identities.updated_at as identity_updated_at
    from keys left join identities using (identity_id)
    where deleted_at is null and ${condition}`;

  /** A key under lock, as the part of a statement that other parts call `before`; none if it has changed since it was seen. */
  const locked = (workspaceId: string, keyId: string, seen?: SeenKey) => sql`
    select keys as before from keys
    where workspace_id = ${workspaceId} and key_id = ${keyId} and deleted_at is null
      ${seen ? sql`and changed_epoch = ${seen.changedEpoch}` : sql``} for update`;

  /** The expiry that a key was given as a setting. */
  const expiresAsSet = sql`nullif(coalesce(expires_as_set, expires_at), 'infinity')`;

  return {
    /** False if the owner does not exist; then nothing is stored. */
    async insertKey(
      call: Call,
      key: NewKey,
      owner: Owner | undefined,
      by: Author,
      answer: KeptAnswer | undefined,
    ): Promise<boolean> {
      const created = await run(
        call,
        sql`
        with ${ownerParts(sql, key.workspaceId, owner, sql`true`, by)}
          ${keyCreation(sql, key, owner ? sql`select identity_id from owner` : sql`select null`, by)},
          events as (${events(sql, by, ...ownerMade(sql, owner), keyCreated(sql))})
          ${keeping(sql, answer, sql`created`)}
        select from created`,
      );
      return created.length === 1;
    },

    /** One statement, hence one snapshot: no change up to its epoch is missing. */
    async readStanding(hash: string, call?: Call): Promise<Snapshot<KeyStanding> | undefined> {
      const [row] = await runForAll(
        call,
        sql<Snapshot<KeyStanding>[]>`
        select key_id, keys.workspace_id, keys.name, enabled, permissions, keys.meta, expires_at, identity_id, external_id,
          identities.meta as identity_meta, identities.created_at as identity_created_at,
          identities.updated_at as identity_updated_at, disabled_at is null as workspace_enabled,
          (select value::float8 from epoch) as epoch
        from keys join workspaces using (workspace_id) left join identities using (identity_id)
        where hash = ${bytes(hash)} and deleted_at is null`,
      );
      return row;
    },

    /** Whether a key is good for anything, and the epoch of the last change to that. */
    async readUsable(keyId: string): Promise<Snapshot<{ usable: boolean }> | undefined> {
      const [row] = await sql<Snapshot<{ usable: boolean }>[]>`
        select deleted_at is null and enabled and disabled_at is null as usable,
          greatest(keys.changed_epoch, workspaces.changed_epoch)::float8 as epoch
        from keys join workspaces using (workspace_id) where key_id = ${keyId}`;
      return row;
    },

    async findKey(call: Call, workspaceId: string, keyId: string): Promise<KeyRow | undefined> {
      const [row] = await run(call, select(sql`keys.workspace_id = ${workspaceId} and key_id = ${keyId}`));
      return row;
    },

    /** The key as a change of it is judged; the change holds only if the key is still so. */
    async seeKey(call: Call, workspaceId: string, keyId: string): Promise<SeenKey | undefined> {
      const [row] = await run(
        call,
        sql<SeenKey[]>`
        select key_id, workspace_id, start, enabled, permissions, expires_at, ${expiresAsSet} as expires_as_set,
          changed_epoch
        from keys
        where workspace_id = ${workspaceId} and key_id = ${keyId} and deleted_at is null`,
      );
      return row;
    },

    async findKeyByHash(call: Call, workspaceId: string, hash: string): Promise<KeyRow | undefined> {
      const [row] = await run(call, select(sql`keys.workspace_id = ${workspaceId} and hash = ${bytes(hash)}`));
      return row;
    },

    async listKeys(
      call: Call,
      workspaceId: string,
      { externalId, enabled }: KeyFilter,
      page: PageRequest,
    ): Promise<KeyRow[]> {
      // As words of the statement: there is an index of those that are disabled.
      const inState = enabled === undefined ? sql`` : enabled ? sql`and enabled` : sql`and not enabled`;
      if (externalId !== undefined) {
        // That is an identity of this workspace, and so are its keys.
        const identityId = idOf(sql, workspaceId, { case: "externalId", value: externalId });
        const ofIdentity = select(sql`identity_id = ${identityId} and key_id > ${page.after} ${inState}`);
        return run(call, pageOf<KeyRow>(sql, ofIdentity, sql`key_id`, page.limit));
      }
      // Not `workspace_id = …`: then the order of all keys would do as well, and if most of them seem to be in this
      // workspace, the planner may walk past all the others first.
      const behind = sql`
        (keys.workspace_id, key_id) > (${workspaceId}, ${page.after}) and keys.workspace_id <= ${workspaceId}`;
      const ofWorkspace = select(sql`${behind} ${inState}`);
      return run(call, pageOf<KeyRow>(sql, ofWorkspace, sql`workspace_id, key_id`, page.limit));
    },

    /**
     * False if the key or its new owner does not exist, or the key has changed since it was seen; then nothing is changed.
     *
     * @param seen the key as the change was judged, if it has to be judged
     */
    async updateKey(
      call: Call,
      workspaceId: string,
      keyId: string,
      changes: KeyChanges,
      by: Author,
      seen?: SeenKey,
    ): Promise<boolean> {
      const { owner } = changes;
      const ownerExists = owner ? sql`and exists (select from owner)` : sql``;
      const told = sql`
        select (a.after).workspace_id, (a.after).key_id, told(b.before), told(a.after) from before b, after a
        where ${isChange(sql)}`;
      const updated = await run(
        call,
        sql`
          with before as (${locked(workspaceId, keyId, seen)}),
            ${ownerParts(sql, workspaceId, owner ?? undefined, sql`exists (select from before)`, by)}
            after as (
              update keys set ${assignments(sql, changes, by)} from before
              where keys.key_id = (before).key_id ${ownerExists} returning keys as after),
            events as (${events(sql, by, ...ownerMade(sql, owner), ["key.update", told])})
          select from after`,
      );
      return updated.length === 1;
    },

    /** False if there was nothing to delete. */
    async deleteKey(call: Call, workspaceId: string, keyId: string, by: Author): Promise<boolean> {
      const told = sql`select (gone).workspace_id, (gone).key_id, told(gone), null::json from gone`;
      const gone = await run(
        call,
        sql`
          with before as (${locked(workspaceId, keyId)}),
            gone as (
              update keys set deleted_at = ${by.at} from before
              where keys.key_id = (before).key_id returning keys as gone),
            events as (${events(sql, by, ["key.delete", told])})
          select from gone`,
      );
      return gone.length === 1;
    },

    /**
     * Stores the successor of a key, with the same settings, and ends the old one at `endsAt`, unless it ends earlier
     * anyway. False if the key has changed since it was seen.
     */
    async replaceKey(
      call: Call,
      old: SeenKey,
      endsAt: Date,
      successor: Successor,
      by: Author,
      answer: KeptAnswer | undefined,
    ): Promise<boolean> {
      const reroll = sql`
        select (a.after).workspace_id, (a.after).key_id, told(b.before), told(a.after) from before b, after a`;
      const creation = sql`select (made).workspace_id, (made).key_id, null::json, told(made) from made`;
      const replaced = await run(
        call,
        sql`
          with before as (${locked(old.workspaceId, old.keyId, old)}),
            after as (
              update keys set expires_at = least(expires_at, ${endsAt}), updated_at = ${by.at},
                expires_as_set = coalesce(expires_as_set, expires_at, 'infinity')
              from before where keys.key_id = (before).key_id
              returning keys as after),
            made as (
              insert into keys (key_id, workspace_id, hash, start, name, enabled, permissions, identity_id, meta,
                expires_at, created_at, updated_at)
              select ${successor.keyId}, workspace_id, ${bytes(successor.hash)}, ${successor.start}, name, enabled,
                permissions, identity_id, meta, ${expiresAsSet}, ${by.at}::timestamptz, ${by.at}::timestamptz
              from (select (before).* from before) as b
              returning keys as made),
            events as (${events(sql, by, ["key.create", creation], ["key.reroll", reroll])})
            ${keeping(sql, answer, sql`made`)}
          select from made`,
      );
      return replaced.length === 1;
    },

    /**
     * When keys were last used; never sets a time back. Keys that are locked are left out, and returned: to wait for one
     * would keep the others of the batch locked, which are of other workspaces.
     */
    async recordUses(uses: ReadonlyMap<string, Date>): Promise<string[]> {
      const keyIds = [...uses.keys()];
      const times = [...uses.values()].map((at) => at.toISOString());
      const left = await patiently(sql<{ keyId: string }[]>`
        with used as materialized (
            select * from unnest(${words(sql, keyIds)}, ${words(sql, times)}::timestamptz[]) as used (key_id, at)),
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
export function keyCreation(sql: Statement, key: NewKey, owner: Fragment, by: Author): Fragment {
  return sql`
    created as (
      insert into keys (key_id, workspace_id, hash, start, name, enabled, permissions, identity_id, meta, expires_at,
        created_at, updated_at)
      select ${key.keyId}, ${key.workspaceId}, ${bytes(key.hash)}::bytea, ${key.start}, ${key.name}, ${key.enabled}::boolean,
        ${words(sql, key.permissions)}, owner.*, ${key.meta && jsonText(sql, key.meta)}::json,
        ${key.expiresAt}::timestamptz, ${by.at}::timestamptz, ${by.at}::timestamptz
      from (${owner}) as owner
      returning keys as created)`;
}

/** Tells of the key that `keyCreation` stores. */
export function keyCreated(sql: Statement): Told {
  return ["key.create", sql`select (created).workspace_id, (created).key_id, null::json, told(created) from created`];
}

/**
 * The parts of a statement that find the owner or, on this condition, make it; the one called `owner` is empty if there
 * is none.
 */
function ownerParts(
  sql: Statement,
  workspaceId: string,
  owner: Owner | undefined,
  condition: Fragment,
  by: Author,
): Fragment {
  if (owner === undefined) return sql``;
  if (owner.kind === "existing") {
    const reference = { case: "identityId", value: owner.identityId } as const;
    return sql`owner as (
      select identity_id from identities where identity_id = ${idOf(sql, workspaceId, reference)} for key share),`;
  }
  // An update that changes nothing, so that the row is found and locked even if somebody else is just adding it.
  return sql`
    resolved as (
      ${insertion(sql, owner.identity, by)} where ${condition}
      on conflict (workspace_id, external_id) do update set external_id = excluded.external_id
      returning identities as owner, xmax = 0 as added),
    owner as (select (owner).identity_id from resolved),`;
}

/** Tells of the owner, if it was made. */
function ownerMade(sql: Statement, owner: Owner | undefined | null): Told[] {
  if (owner?.kind !== "named") return [];
  const facts = sql`select (owner).workspace_id, (owner).identity_id, null::json, told(owner) from resolved where added`;
  return [["identity.create", facts]];
}

function bytes(hex: string): Buffer {
  return Buffer.from(hex, "hex");
}

/** Only what changes is assigned. */
function assignments(sql: Statement, changes: KeyChanges, by: Author): Fragment {
  const { name, enabled, permissions, meta, expiresAt, owner } = changes;
  return [
    name !== undefined && sql`name = ${name}`,
    enabled !== undefined && sql`enabled = ${enabled}`,
    permissions !== undefined && sql`permissions = ${words(sql, permissions)}`,
    meta !== undefined && sql`meta = ${meta && jsonText(sql, meta)}`,
    expiresAt !== undefined && sql`expires_at = ${expiresAt}, expires_as_set = null`,
    owner !== undefined && sql`identity_id = ${owner ? sql`(select identity_id from owner)` : null}`,
  ].reduce<Fragment>((all, one) => (one ? sql`${all}, ${one}` : all), sql`updated_at = ${by.at}`);
}
