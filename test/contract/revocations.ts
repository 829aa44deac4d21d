import { succeed } from "../support/calls.js";
import { operatorKey, type TestApp } from "../support/harness.js";

/** A key that is about to be revoked, in its own workspace. The workspace's first key stays valid. */
export interface Victim {
  readonly workspaceId: string;
  readonly firstKey: string;
  readonly keyId: string;
  readonly key: string;
}

/** A way to revoke a key. */
export interface Revocation {
  readonly name: string;
  /** Revokes the key through this service, and resolves when that is acknowledged. */
  revoke(app: TestApp, victim: Victim): Promise<unknown>;
  /** The error code that the key is refused with from then on. */
  readonly code: string;
}

export async function createVictim({ httpUrl }: TestApp): Promise<Victim> {
  const home = await succeed<{ workspaceId: string; key: string }>(httpUrl, "workspaces.createWorkspace", operatorKey, {
    name: "acme",
  });
  const made = await succeed<{ keyId: string; key: string }>(httpUrl, "keys.createKey", home.key, {
    name: "victim",
    scopes: ["*"],
  });
  return { workspaceId: home.workspaceId, firstKey: home.key, ...made };
}

const update =
  (changes: object) =>
  (app: TestApp, { firstKey, keyId }: Victim) =>
    succeed(app.httpUrl, "keys.updateKey", firstKey, { keyId, ...changes });

export const revocations: readonly Revocation[] = [
  {
    name: "deleteKey",
    revoke: ({ httpUrl }, { firstKey, keyId }) => succeed(httpUrl, "keys.deleteKey", firstKey, { keyId }),
    code: "authentication/key_not_found",
  },
  { name: "updateKey with enabled = false", revoke: update({ enabled: false }), code: "authorization/key_disabled" },
  {
    name: "updateKey without scopes",
    revoke: update({ scopes: [] }),
    code: "authorization/insufficient_permissions",
  },
  {
    name: "updateKey with fewer scopes than the change grants",
    revoke: update({ scopes: ["keys.create", "keys.update", "keys.verify", "identities.*"] }),
    code: "authorization/insufficient_permissions",
  },
  {
    name: "rerollKey",
    revoke: ({ httpUrl }, { firstKey, keyId }) => succeed(httpUrl, "keys.rerollKey", firstKey, { keyId }),
    code: "authentication/key_expired",
  },
  {
    name: "disableWorkspace",
    revoke: ({ httpUrl }, { workspaceId }) =>
      succeed(httpUrl, "workspaces.disableWorkspace", operatorKey, { workspaceId, reason: "UNPAID_BILLING" }),
    code: "authorization/workspace_disabled",
  },
  {
    name: "deleteWorkspace",
    async revoke({ httpUrl }, { workspaceId }) {
      await succeed(httpUrl, "workspaces.disableWorkspace", operatorKey, { workspaceId, reason: "ACCOUNT_CLOSURE" });
      return succeed(httpUrl, "workspaces.deleteWorkspace", operatorKey, { workspaceId });
    },
    code: "authentication/key_not_found",
  },
];
