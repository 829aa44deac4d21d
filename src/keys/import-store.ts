import type { JsonObject } from "@bufbuild/protobuf";
import { insertAuditEvents } from "../audit/store.js";
import type { Call, IdempotencyRecord } from "../call/call.js";
import type { Actor } from "../call/context.js";
import { type Credits, creditsImport } from "../credits/store.js";
import { apiNotFound } from "../errors.js";
import { insertIdempotencyRecord } from "../idempotency/store.js";
import { mintId } from "../ids.js";
import type { Quotas } from "../quotas/quotas.js";
import { type QuotaCheck, reachedQuota, refuseBeyondQuota } from "../quotas/quotas.js";
import type { RateLimitSettings } from "../revocation/key-state.js";
import { isUniqueViolation } from "../storage/postgres/connection.js";
import type { Database } from "../storage/postgres/database.js";
import { jsonParameter, sql, textArrayParameter } from "../storage/postgres/sql.js";
import { selectRoles } from "./statement-parts.js";

/** A key of another service, to be stored by the hash of its secret. */
export interface ImportedKey {
  readonly keyId: string;
  /** SHA-256 of its secret, in hex. */
  readonly hash: string;
  readonly name: string | null;
  readonly enabled: boolean;
  readonly permissions: readonly string[];
  readonly roleIds: readonly string[];
  readonly ratelimits: readonly RateLimitSettings[];
  /** Null for a key without credits. */
  readonly credits: Credits | null;
  readonly externalId: string | null;
  readonly meta: JsonObject | null;
  readonly expiresAt: Date | null;
}

/** Keys to be stored in one statement, and what they have in common. */
export interface Import {
  readonly workspaceId: string;
  readonly migrationId: string;
  readonly apiId: string | null;
  readonly keys: readonly ImportedKey[];
}

/** What an import depends on, as it was read before. */
export interface ImportReferences {
  /** Those of the hashes that exist already, in any workspace, or that were imported into this one before and deleted. */
  readonly hashes: readonly string[];
  /** Those of the roles that exist. */
  readonly roles: readonly { readonly roleId: string; readonly name: string }[];
  /** True if there is no API to be found. */
  readonly apiExists: boolean;
}

export type ImportStore = ReturnType<typeof createImportStore>;

export function createImportStore(db: Database, quotas: Quotas) {
  return {
    /**
     * @param hashes in hex
     * @param roles names and ids
     */
    async readReferences(
      call: Call,
      workspaceId: string,
      hashes: readonly string[],
      roles: readonly string[],
      apiId: string | null,
    ): Promise<ImportReferences> {
      const [row] = await db.run(
        call,
        sql<ImportReferences[]>`
          with given as materialized (
              select decode(given, 'hex') as hash from unnest(${textArrayParameter(hashes)}) as given)
          select array(
              select encode(hash, 'hex') from keys where hash = any (array(select hash from given))
              union select encode(hash, 'hex') from removed_imports
              where workspace_id = ${workspaceId} and hash = any (array(select hash from given)))
              as hashes,
            (select coalesce(json_agg(json_build_object('roleId', role_id, 'name', name)), '[]')
              from (${selectRoles(workspaceId, roles)}) as found) as roles,
            ${apiId}::text is null or exists (
              select from apis where workspace_id = ${workspaceId} and api_id = ${apiId} and deleted_at is null) as api_exists`,
      );
      return row ?? { hashes: [], roles: [], apiExists: false };
    },

    /**
     * Stores all the keys, or none. False if one of their hashes or roles is no longer as it was read. Throws if the API does
     * not exist.
     */
    async insertKeys(
      call: Call,
      { workspaceId, migrationId, apiId, keys }: Import,
      actor: Actor,
      record: IdempotencyRecord | undefined,
    ): Promise<boolean> {
      const roleIds = [...new Set(keys.flatMap((key) => key.roleIds))];
      const externalIds = [...new Set(keys.flatMap(({ externalId }) => externalId ?? []))];
      const owners = externalIds.map((externalId) => ({
        externalId,
        identityId: mintId("id"),
        eventId: mintId("evt"),
      }));
      const rows = keys.map((key, position) => ({
        ...key,
        position,
        eventId: mintId("evt"),
        creditsEventId: mintId("evt"),
      }));
      const newIdentities = sql`(
        select count(*) from given_owners where (
          select identity_id from identities
          where workspace_id = ${workspaceId} and external_id = "externalId" and deleted_at is null) is null)`;
      const growth = { keys: keys.length, identities: { atMost: owners.length, number: newIdentities } };
      const ownerFacts = sql`
        select (owner).workspace_id, (owner).identity_id, null::json, audit_snapshot(owner), "eventId"
        from resolved join given_owners on "identityId" = (owner).identity_id where added`;
      const keyFacts = sql`
        select (made).workspace_id, (made).key_id, null::json, audit_snapshot(made), "eventId"
        from made join given on "keyId" = (made).key_id order by position`;
      const creditsFacts = sql`
        select ${workspaceId}::text, (made_credits.credits).key_id, null::json, credits_json(made_credits.credits),
          "creditsEventId"
        from made_credits join given on "keyId" = (made_credits.credits).key_id order by position`;
      // Identities and keys are inserted in an order that does not depend on the request: two imports do not deadlock.
      const inserting = db.run(
        call,
        sql<(QuotaCheck & { apiExists: boolean; rolesExist: boolean })[]>`
          with given as materialized (
              select * from json_to_recordset(${jsonParameter(rows)}) as given (
                position int, "eventId" text, "keyId" text, hash text, name text, enabled boolean, permissions json,
                "roleIds" json, ratelimits json, credits json, "creditsEventId" text, "externalId" text, meta json,
                "expiresAt" timestamptz)),
            given_owners as materialized (
              select * from json_to_recordset(${jsonParameter(owners)}) as given_owners (
                "externalId" text, "identityId" text, "eventId" text)),
            quota as (select ${reachedQuota(quotas, workspaceId, growth)} as reached),
            found_api as (
              select from apis where workspace_id = ${workspaceId} and api_id = ${apiId} and deleted_at is null
              for key share),
            found_roles as (
              select role_id from roles
              where workspace_id = ${workspaceId} and role_id = any (${textArrayParameter(roleIds)})
                and deleted_at is null for key share),
            checked as materialized (
              select reached, ${apiId}::text is null or exists (select from found_api) as api_exists,
                (select count(*) from found_roles) = ${roleIds.length} as roles_exist
              from quota),
            accepted as (select from checked where reached is null and api_exists and roles_exist),
            resolved as (
              insert into identities (identity_id, workspace_id, external_id, meta, created_at, updated_at)
              select "identityId", ${workspaceId}, "externalId", '{}', now(), now() from given_owners, accepted
              order by "externalId" collate "C"
              on conflict (workspace_id, external_id) where deleted_at is null
              do update set external_id = excluded.external_id
              returning identities as owner, xmax = 0 as added),
            made as (
              insert into keys (key_id, workspace_id, hash, start, name, enabled, permissions, role_ids, api_id, ratelimits,
                has_credits, identity_id, migration_id, meta, expires_at, created_at, updated_at)
              select "keyId", ${workspaceId}, decode(hash, 'hex'), '', name, enabled,
                array(select json_array_elements_text(permissions)), array(select json_array_elements_text("roleIds")),
                ${apiId}, ratelimits, credits is not null, (owner).identity_id, ${migrationId}, meta, "expiresAt", now(),
                now()
              from accepted, given left join resolved on (owner).external_id = "externalId"
              order by hash
              returning keys as made),
            made_credits as (${creditsImport}),
            marked as (
              update workspaces set has_imports = true from accepted
              where workspace_id = ${workspaceId} and not has_imports and exists (select from given)
              returning workspace_id),
            events as (${insertAuditEvents(
              actor,
              ["identity.create", ownerFacts, "own ids"],
              ["key.create", keyFacts, "own ids"],
              ["key.updateCredits", creditsFacts, "own ids"],
            )})
            ${insertIdempotencyRecord(record, sql`accepted`)}
          select checked.*, (select count(*) from made) as inserted, (select count(*) from marked) as marked from checked`,
      );
      const [row] = await inserting.catch((error: unknown) => {
        if (isUniqueViolation(error, "keys_hash_key")) return [];
        throw error;
      });
      refuseBeyondQuota(quotas, row);
      if (row?.apiExists === false) throw apiNotFound();
      return row?.rolesExist === true;
    },
  };
}
