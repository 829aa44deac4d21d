// Moves an application from Unkey to Latchkey while the holders of its keys keep them. Both sides are clients of
// @unkey/api: `unkey` as before, `latchkey` with another serverURL.
import { createHash } from "node:crypto";
import type { Unkey } from "@unkey/api";
import type { KeyResponseData, V2KeysMigrateKeyData, V2KeysVerifyKeyRequestBody } from "@unkey/api/models/components";
import { ConflictErrorResponse } from "@unkey/api/models/errors";

/** Copies permissions, roles and identities with their rate limits. What exists already stays unchanged. */
export async function copyCatalogue(unkey: Unkey, latchkey: Unkey): Promise<void> {
  for await (const { result } of await unkey.permissions.listPermissions({})) {
    for (const { name, slug, description } of result.data) {
      await orExists(latchkey.permissions.createPermission({ name, slug, description }));
    }
  }
  for await (const { result } of await unkey.permissions.listRoles({})) {
    for (const { name, description, permissions = [] } of result.data) {
      const slugs = permissions.map(({ slug }) => slug);
      await orExists(latchkey.permissions.createRole({ name, description, permissions: slugs }));
    }
  }
  for await (const { result } of await unkey.identities.listIdentities({})) {
    for (const { externalId, meta, ratelimits } of result.data) {
      await orExists(latchkey.identities.createIdentity({ externalId, meta, ratelimits }));
    }
  }
}

/** The import of one key: the hash of its secret, and its settings at Unkey. */
export function importOf(secret: string, stored: KeyResponseData): V2KeysMigrateKeyData {
  const { name, meta, expires, enabled, permissions, roles, credits, ratelimits, identity } = stored;
  const hash = createHash("sha256").update(secret).digest("base64");
  const settings = { name, meta, expires, enabled, permissions, roles, credits, ratelimits };
  return { hash, externalId: identity?.externalId, ...settings };
}

/** Creates a function that verifies keys with Latchkey, and imports those that only Unkey knows when they are used. */
export function createVerify(unkey: Unkey, latchkey: Unkey, apiId: string) {
  return async (request: V2KeysVerifyKeyRequestBody) => {
    const { data: here } = await latchkey.keys.verifyKey(request);
    if (here.code !== "NOT_FOUND") return here;
    const { data: there } = await unkey.keys.verifyKey({ key: request.key, credits: { cost: 0 } });
    if (!there.valid || there.keyId === undefined) return here;
    const { data: stored } = await unkey.keys.getKey({ keyId: there.keyId });
    await latchkey.keys.migrateKeys({ migrationId: "on-demand", apiId, keys: [importOf(request.key, stored)] });
    return (await latchkey.keys.verifyKey(request)).data;
  };
}

async function orExists(created: Promise<unknown>): Promise<void> {
  await created.catch((error: unknown) => {
    if (!(error instanceof ConflictErrorResponse)) throw error;
  });
}
