import { timestampDate } from "@bufbuild/protobuf/wkt";
import type { KeysService, ImportedKey as RequestedKey } from "../../gen/latchkey/v1/keys_service_pb.js";
import { actorOf, callingKey, type Handlers } from "../call/context.js";
import { fromCredits } from "../credits/convert.js";
import { apiNotFound, invalidInput, roleNotFound } from "../errors.js";
import { fromRateLimits } from "../identities/convert.js";
import { mintId } from "../ids.js";
import type { KeyCache } from "../revocation/key-cache.js";
import type { ImportedKey, ImportReferences, ImportStore } from "./import-store.js";

/** Imports keys of other services by the hashes of their secrets. */
export function createImport(
  store: ImportStore,
  keyCache: KeyCache,
): Pick<Handlers<typeof KeysService>, "migrateKeys"> {
  return {
    async migrateKeys({ migrationId, apiId = null, keys }, context) {
      const { workspaceId } = callingKey(context);
      const { call } = context;
      const requested = keys.map((key) => ({ key, hash: toHex(key.hash) }));
      const hashes = requested.map(({ hash }) => hash);
      refuseDuplicates(hashes);
      const roles = [...new Set(keys.flatMap((key) => key.roles))];
      const timeline = keyCache.knownTimeline();
      // Retries if a hash or a role changes between the check and the import.
      for (;;) {
        const found = await store.readReferences(call, workspaceId, hashes, roles, apiId);
        const roleIdOf = roleIdsOf(found.roles, roles);
        if (!found.apiExists) throw apiNotFound();
        const existing = new Set(found.hashes);
        const added = requested.filter(({ hash }) => !existing.has(hash));
        const imported = added.map(({ key, hash }) => toImportedKey(key, hash, roleIdOf));
        const response = {
          migrated: added.map(({ key }, index) => ({ hash: key.hash, keyId: imported[index]?.keyId ?? "" })),
          failed: requested.filter(({ hash }) => existing.has(hash)).map(({ key }) => key.hash),
        };
        // Without keys, too, if there is an idempotency key: the first response may have been stored meanwhile.
        const isChange = imported.length > 0 || context.record !== undefined;
        const all = { workspaceId, migrationId, apiId, keys: imported };
        if (isChange && !(await store.insertKeys(call, all, actorOf(context), context.record?.(response)))) continue;
        // After an unknown outcome, a retrying client concludes from `failed` that its first attempt succeeded. And every
        // replica must know that the workspace has imports before one of these keys is verified.
        await (response.failed.length > 0 ? keyCache.awaitEarlierChanges(call, timeline) : keyCache.awaitPropagation());
        return response;
      }
    },
  };
}

/** Base64 with or without padding: the same hash can be written in two ways. */
function toHex(hash: string): string {
  return Buffer.from(hash, "base64").toString("hex");
}

function refuseDuplicates(hashes: readonly string[]): void {
  if (new Set(hashes).size === hashes.length) return;
  throw invalidInput([{ location: "keys", message: "must not contain the same hash twice" }]);
}

/** Returns the id of each requested role, which may be given by its name. Throws if one does not exist. */
function roleIdsOf(found: ImportReferences["roles"], requested: readonly string[]): (role: string) => string {
  const ids = new Map(
    found.flatMap(
      ({ roleId, name }) =>
        [
          [name, roleId],
          [roleId, roleId],
        ] as const,
    ),
  );
  const unknown = requested.find((role) => !ids.has(role));
  if (unknown !== undefined) throw roleNotFound(unknown);
  return (role) => ids.get(role) as string;
}

function toImportedKey(key: RequestedKey, hash: string, roleIdOf: (role: string) => string): ImportedKey {
  return {
    keyId: mintId("key"),
    hash,
    name: key.name ?? null,
    enabled: key.enabled ?? true,
    permissions: key.permissions,
    roleIds: [...new Set(key.roles.map(roleIdOf))],
    ratelimits: fromRateLimits(key.ratelimits),
    credits: fromCredits(key.credits),
    externalId: key.externalId ?? null,
    meta: key.meta ?? null,
    expiresAt: key.expires ? timestampDate(key.expires) : null,
  };
}
