import { timestampDate } from "@bufbuild/protobuf/wkt";
import type { CreateKeyRequest, KeysService } from "../../gen/latchkey/v1/keys_service_pb.js";
import { callingKey, covers, type Handlers, type KeyHolder } from "../auth/principal.js";
import { grantExceeded, identityNotFound } from "../errors.js";
import { mintId } from "../ids.js";
import { readPage, writePage } from "../page.js";
import { toKey } from "./convert.js";
import { mintSecret } from "./secret.js";
import type { KeysStore, Owner } from "./store.js";

/** The keys of the caller's workspace. */
export function createKeysService(store: KeysStore, now: () => Date) {
  return {
    async createKey(request, context) {
      const caller = callingKey(context);
      refuseExcessGrants(caller, request.permissions);
      const createdAt = now();
      const secret = mintSecret(request.prefix);
      const key = {
        keyId: mintId("key"),
        workspaceId: caller.workspaceId,
        hash: secret.hash,
        start: secret.start,
        name: request.name ?? null,
        enabled: request.enabled ?? true,
        permissions: request.permissions,
        meta: request.meta ?? null,
        expiresAt: request.expires ? timestampDate(request.expires) : null,
        createdAt,
      };
      const stored = await store.insertKey(key, ownerOf(request, caller.workspaceId, createdAt));
      if (!stored) throw identityNotFound();
      return { keyId: key.keyId, key: secret.plaintext };
    },

    async listKeys(request, context) {
      const { workspaceId } = callingKey(context);
      const page = readPage("keys", request);
      const found = await store.listKeys(workspaceId, page);
      const { rows, pagination } = writePage("keys", page, found, (row) => row.keyId);
      return { keys: rows.map(toKey), pagination };
    },
  } satisfies Handlers<typeof KeysService>;
}

/** A key may grant only what it holds itself. */
function refuseExcessGrants(caller: KeyHolder, permissions: readonly string[]): void {
  const excess = permissions.find((permission) => !covers(caller.permissions, permission));
  if (excess !== undefined) throw grantExceeded(excess);
}

function ownerOf({ owner }: CreateKeyRequest, workspaceId: string, createdAt: Date): Owner | undefined {
  if (owner.case === "identityId") return { kind: "existing", identityId: owner.value };
  if (owner.case === undefined) return undefined;
  return {
    kind: "named",
    identity: { identityId: mintId("id"), workspaceId, externalId: owner.value, meta: {}, createdAt },
  };
}
