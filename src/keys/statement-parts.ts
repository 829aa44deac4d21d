import type { AuditFact } from "../audit/store.js";
import { creditsOfKey, endsCredits } from "../credits/store.js";
import { apiNotFound, roleNotFound } from "../errors.js";
import { idOf, insertion } from "../identities/store.js";
import { type Fragment, jsonParameter, sql, textArrayParameter } from "../storage/postgres/sql.js";
import type { ChangedKey, KeyChanges, KeyRow, NewKey, Owner } from "./rows.js";

/**
 * The columns of a KeyRow, from `keys` and `identities`.
 *
 * @param credits an expression for the credits of the key: `creditsOfKey`, or another if the statement itself has changed them
 */
export function keyColumns(credits: Fragment): Fragment {
  return sql`
    key_id, keys.workspace_id, start, name, enabled, scopes, permissions, ${roleNames} as roles, keys.api_id,
    keys.ratelimits, ${credits} as credits, keys.meta, expires_at, last_used_at, keys.created_at, keys.updated_at, identities.identity_id,
    external_id, identities.meta as identity_meta, identities.ratelimits as identity_ratelimits,
    identities.created_at as identity_created_at, identities.updated_at as identity_updated_at`;
}

/** The names of the roles of a key, in order. */
export const roleNames = sql`
  case when role_ids = '{}' then '{}' else (
    select coalesce(array_agg(roles.name order by roles.name), '{}') from roles
    where role_id = any (role_ids) and deleted_at is null) end`;

/** The roles of a key that were not deleted, with their ids and names. */
export const liveRoles = sql`
  case when role_ids = '{}' then '[]'::json else (
    select coalesce(json_agg(json_build_object('roleId', role_id, 'name', roles.name) order by position), '[]')
    from unnest(role_ids) with ordinality as given (id, position) join roles on role_id = id
    where roles.deleted_at is null) end`;

/** The condition that the API of a key was not deleted, and with it the key. */
export const inLiveApi = isLiveApi(sql`keys.api_id`);

/**
 * The condition that an API was not deleted, or that there is none. Not with `exists`: for that, the planner may read all APIs
 * of all workspaces into a hash table.
 */
export function isLiveApi(apiId: Fragment): Fragment {
  return sql`(${apiId} is null or (select apis.deleted_at is null from apis where apis.api_id = ${apiId}))`;
}

/** Joins the identity of a key. A key may still refer to an identity that was deleted. */
export const withIdentity = sql`
  left join identities on identities.identity_id = keys.identity_id and identities.deleted_at is null`;

/** Keys that are not deleted. */
export function selectKeys(condition: Fragment) {
  return sql<KeyRow[]>`
    select ${keyColumns(creditsOfKey)} from keys ${withIdentity}
    where keys.deleted_at is null and ${inLiveApi} and ${condition}`;
}

/**
 * Locks a key, as the part of a statement called `before`. Empty if the key is no longer at this version or has scopes, or its
 * API was deleted. The part locks the API and the identity of the key, too. An identity that was deleted is removed from the
 * row, to be written with the change.
 */
export function lockKey({ workspaceId, keyId, changedXid }: ChangedKey): Fragment {
  const isAsChecked = changedXid === undefined ? sql`scopes = '{}'` : sql`changed_xid = ${changedXid}::xid8`;
  return sql`
    select case when (before).identity_id is null or lock_live_identity((before).identity_id) is not null then before
      else jsonb_populate_record(before, '{"identity_id": null}') end as before
    from (
      select keys as before from keys
      where workspace_id = ${workspaceId} and key_id = ${keyId} and deleted_at is null and ${isAsChecked} for update) as found
    where (before).api_id is null or lock_live_api((before).api_id) is not null`;
}

/** The expiry that was set for a key: a reroll may have ended it earlier. */
export const configuredExpiry = sql`nullif(coalesce(configured_expires_at, expires_at), 'infinity')`;

/**
 * The part `created` of a statement, which inserts a key.
 *
 * @param owner selects the identityId of the key's owner; if it selects no row, no key is inserted
 */
export function keyCreation(key: NewKey, owner: Fragment): Fragment {
  return sql`
    created as (
      insert into keys (key_id, workspace_id, hash, start, name, enabled, scopes, permissions, role_ids, api_id, ratelimits,
        has_credits, identity_id, meta, expires_at, created_at, updated_at)
      select ${key.keyId}, ${key.workspaceId}, ${hashBytes(key.hash)}::bytea, ${key.start}, ${key.name}, ${key.enabled}::boolean,
        ${textArrayParameter(key.scopes)}, ${textArrayParameter(key.permissions)}, ${roleIds(key.roles)},
        ${key.apiId}, ${jsonParameter(key.ratelimits)}::json, ${key.credits !== null}::boolean, owner.*, ${key.meta && jsonParameter(key.meta)}::json,
        ${key.expiresAt}::timestamptz, now(), now()
      from (${owner}) as owner
      returning keys as created)`;
}

/** The event of the key that `keyCreation` inserts. */
export const keyCreated: AuditFact = [
  "key.create",
  sql`select (created).workspace_id, (created).key_id, null::json, audit_snapshot(created) from created`,
];

/** The result of a statement with `referenceParts`. */
export interface UnknownReferences {
  readonly apiIsUnknown: boolean;
  readonly unknownRole: string | null;
}

/**
 * The parts of a statement that find the API and the roles of a key, and lock them, so that they exist until its end. A
 * role can be given by its name or its id.
 */
export function referenceParts({ workspaceId, roles, apiId }: Pick<NewKey, "workspaceId" | "roles" | "apiId">) {
  const given = textArrayParameter(roles);
  const noRole = roles.length === 0;
  const unknownRole = noRole
    ? sql`null::text`
    : sql`(
      select given from unnest(${given}) as given
      where not exists (select from found_roles where given in (role_id, name)) limit 1)`;
  const apiIsUnknown = apiId === null ? sql`false` : sql`not exists (select from found_api)`;
  const rolePart = sql`found_roles as (${selectRoles(workspaceId, roles)} for key share),`;
  const apiPart = sql`
    found_api as (
      select from apis where workspace_id = ${workspaceId} and api_id = ${apiId} and deleted_at is null for key share),`;
  return {
    parts: sql`${noRole ? sql`` : rolePart}${apiId === null ? sql`` : apiPart}`,
    exist: sql`(${unknownRole} is null and not ${apiIsUnknown})`,
    unknown: sql`${unknownRole} as unknown_role, ${apiIsUnknown} as api_is_unknown`,
  };
}

/**
 * Roles by their names or ids. No name has the form of an id. Each is looked up by itself: for a condition on all of them, the
 * planner may read all roles of the workspace.
 */
export function selectRoles(workspaceId: string, given: readonly string[]): Fragment {
  // The condition on deleted_at is repeated here: after waiting for a lock, PostgreSQL checks only this query's own.
  return sql`
    select role_id, name from roles
    where deleted_at is null and role_id = any (array(
      select found.role_id from unnest(${textArrayParameter(given)}) as given cross join lateral (
        select role_id from roles where workspace_id = ${workspaceId} and deleted_at is null and role_id = given
        union all
        select role_id from roles where workspace_id = ${workspaceId} and deleted_at is null and name = given) as found))`;
}

/** Throws if the API or a role does not exist. The statement has then changed nothing. */
export function refuseUnknownReferences(found: UnknownReferences | undefined): void {
  if (found?.apiIsUnknown) throw apiNotFound();
  if (found && found.unknownRole !== null) throw roleNotFound(found.unknownRole);
}

/** The ids of the roles that the key keeps, and of those that `referenceParts` found. */
function roleIds(roles: readonly string[], kept: readonly string[] = []): Fragment {
  const keptIds = textArrayParameter(kept);
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
export function ownerParts(workspaceId: string, owner: Owner | undefined, condition: Fragment): Fragment {
  if (owner === undefined) return sql``;
  if (owner.kind === "existing") {
    const reference = { case: "identityId", value: owner.identityId } as const;
    // The condition on deleted_at is repeated here: after waiting for a lock, PostgreSQL checks only this query's own.
    return sql`owner as (
      select identity_id from identities
      where identity_id = ${idOf(workspaceId, reference)} and deleted_at is null for key share),`;
  }
  // An update that changes nothing: it finds and locks the row even if a concurrent statement is inserting it.
  return sql`
    resolved as (
      ${insertion(owner.identity)} where exists (select from quota where reached is null) and ${condition}
      on conflict (workspace_id, external_id) where deleted_at is null do update set external_id = excluded.external_id
      returning identities as owner, xmax = 0 as added),
    owner as (select (owner).identity_id from resolved),`;
}

/** The condition that the owner will be inserted. */
export function isNewOwner(owner: Owner | undefined | null): Fragment | false {
  if (owner?.kind !== "named") return false;
  const { workspaceId, externalId } = owner.identity;
  return sql`not exists (
    select from identities where workspace_id = ${workspaceId} and external_id = ${externalId} and deleted_at is null)`;
}

/** The event of an inserted owner. */
export function ownerCreated(owner: Owner | undefined | null): AuditFact[] {
  if (owner?.kind !== "named") return [];
  const facts = sql`
    select (owner).workspace_id, (owner).identity_id, null::json, audit_snapshot(owner) from resolved where added`;
  return [["identity.create", facts]];
}

export function hashBytes(hex: string): Buffer {
  return Buffer.from(hex, "hex");
}

/**
 * Whether a key ends with this expiry. An expiry in the past ends it, and no clock reverses that. A key that has ended is
 * usable again only with a later expiry than its present one.
 */
function endedBy(expiresAt: Date | null): Fragment {
  if (expiresAt === null) return sql`false`;
  return sql`(${expiresAt}::timestamptz <= clock_timestamp() or ended and ${expiresAt}::timestamptz <= expires_at)`;
}

/** Assigns only the changed columns. */
export function assignments(changes: KeyChanges): Fragment {
  const { name, enabled, scopes, permissions, roles, keptRoleIds, ratelimits, credits, meta, expiresAt, owner } =
    changes;
  return [
    credits !== undefined && sql`has_credits = ${credits !== null}`,
    roles !== undefined && sql`role_ids = ${roleIds(roles, keptRoleIds)}`,
    ratelimits !== undefined && sql`ratelimits = ${jsonParameter(ratelimits)}`,
    name !== undefined && sql`name = ${name}`,
    enabled !== undefined && sql`enabled = ${enabled}`,
    scopes !== undefined && sql`scopes = ${textArrayParameter(scopes)}`,
    permissions !== undefined && sql`permissions = ${textArrayParameter(permissions)}`,
    meta !== undefined && sql`meta = ${meta && jsonParameter(meta)}`,
    expiresAt !== undefined &&
      sql`expires_at = ${expiresAt}, configured_expires_at = null, ended = ${endedBy(expiresAt)}`,
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
export function onlyRemoves(changes: KeyChanges): Fragment {
  const { name, enabled, scopes, permissions, roles, keptRoleIds, ratelimits, credits, meta, expiresAt, owner } =
    changes;
  if (enabled === true || name || meta || owner || expiresAt === null) return sql`false`;
  if (credits !== undefined && !endsCredits(credits)) return sql`false`;
  // Without a rate limit, a key may do more; with other roles, too.
  if (ratelimits || roles?.length) return sql`false`;
  const isPart = (column: Fragment, given: readonly string[]) => sql`
    ((before).${column} = ${textArrayParameter(given)} or (before).${column} @> ${textArrayParameter(given)}
      and cardinality((before).${column}) > cardinality(${textArrayParameter(given)}))`;
  return [
    scopes !== undefined && isPart(sql`scopes`, scopes),
    permissions !== undefined && isPart(sql`permissions`, permissions),
    roles !== undefined && isPart(sql`role_ids`, keptRoleIds ?? []),
    expiresAt !== undefined &&
      sql`((before).expires_at is null or ${expiresAt}::timestamptz = (before).expires_at
        or (before).expires_at > now() and ${expiresAt}::timestamptz <= now() + ((before).expires_at - now()) / 2)`,
  ].reduce<Fragment>((all, one) => (one ? sql`${all} and ${one}` : all), sql`true`);
}
