import type { HeaderLines } from "../support/clients/headers.js";
import type { CallRequest } from "../support/clients/protocol-client.js";
import { operatorKey } from "../support/harness.js";
import { type OperationName, operationOf } from "../support/operations.js";
import { newHash } from "./callers.js";
import type { Scene } from "./scene.js";

const day = 86_400_000;

/** A call that can be retried: the credential, the request and the Idempotency-Key. */
export type RepeatableCall = readonly [credential: string, request: CallRequest, headers: HeaderLines];

export function withKey(key: string): HeaderLines {
  return [["idempotency-key", key]];
}

/** A call that succeeds, with every field set and an unused Idempotency-Key. */
export async function newCall(operation: OperationName, scene: Scene): Promise<RepeatableCall> {
  return [credentialFor(operation, scene), await requestFor(operation, scene), newKey()];
}

let keys = 0;

/** An unused Idempotency-Key. */
export function newKey(): HeaderLines {
  keys += 1;
  return withKey(`attempt ${keys}`);
}

export function credentialFor(operation: OperationName, { home }: Scene): string {
  return operationOf(operation).scope === undefined ? operatorKey : home.key;
}

async function requestFor(operation: OperationName, scene: Scene): Promise<CallRequest> {
  const make = requests[operation];
  if (make === undefined) throw new Error(`there is no request of ${operation} to retry`);
  return make(scene);
}

/** A request of each operation that accepts an Idempotency-Key. */
const requests: Partial<Record<OperationName, (scene: Scene) => CallRequest | Promise<CallRequest>>> = {
  createIdentity: () => ({ externalId: "user_1", meta: { plan: "pro" }, ratelimits: [perMinute("requests")] }),
  createWorkspace: () => ({ name: "Acme" }),
  createRootKey: ({ home }) => ({ workspaceId: home.workspaceId, name: "spare", scopes: ["keys.*"] }),
  rerollKey: async ({ ok, home }) => ({ keyId: (await ok("createKey", home.key)).keyId, expiration: day }),
  updateCredits: async ({ ok, home }) => {
    const { keyId } = await ok("createKey", home.key, { credits: { remaining: 10 } });
    return { keyId, operation: "increment", value: 5 };
  },
  migrateKeys: async ({ ok, home }) => {
    const { apiId } = await ok("createApi", home.key, { name: "imported" });
    const settings = { externalId: "user_3", permissions: ["documents.read"], credits: { remaining: 7 } };
    return { migrationId: "from another service", apiId, keys: [{ hash: newHash(), ...settings }] };
  },
  createApi: () => ({ name: "payments" }),
  createPermission: () => ({ name: "Read documents", slug: "documents.read", description: "of all teams" }),
  createRole: () => ({ name: "editor", description: "edits", permissions: ["documents.read", "documents:write"] }),
  createKey: async ({ ok, home, clock }) => ({
    name: "ci",
    prefix: "acme",
    externalId: "user_2",
    scopes: ["keys.*"],
    permissions: ["documents.read", "keys.*"],
    meta: { team: 7, deep: { b: [null, 1.5], a: "x" } },
    expires: clock.now() + 30 * day,
    enabled: false,
    apiId: (await ok("createApi", home.key, { name: "reports" })).apiId,
    roles: [(await ok("createRole", home.key, { name: "reader" })).roleId],
    ratelimits: [perMinute("requests"), perMinute("tokens")],
    credits: { remaining: 100, refill: { interval: "monthly", amount: 100, refillDay: 31 } },
  }),
};

function perMinute(name: string): CallRequest {
  return { name, limit: 60, duration: 60_000 };
}
