import type { HeaderLines } from "../support/clients/headers.js";
import type { CallRequest } from "../support/clients/protocol-client.js";
import { operatorKey } from "../support/harness.js";
import { type OperationName, operationOf } from "../support/operations.js";
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

async function requestFor(operation: OperationName, { ok, home, clock }: Scene): Promise<CallRequest> {
  if (operation === "createIdentity") return { externalId: "user_1", meta: { plan: "pro" } };
  if (operation === "createWorkspace") return { name: "Acme" };
  if (operation === "createRootKey") return { workspaceId: home.workspaceId, name: "spare", scopes: ["keys.*"] };
  if (operation === "rerollKey") return { keyId: (await ok("createKey", home.key)).keyId, expiration: day };
  return {
    name: "ci",
    prefix: "acme",
    externalId: "user_2",
    scopes: ["keys.*"],
    permissions: ["documents.read", "keys.*"],
    meta: { team: 7, deep: { b: [null, 1.5], a: "x" } },
    expires: clock.now() + 30 * day,
    enabled: false,
  };
}
