import { expect, it } from "vitest";
import { createAuthentication } from "../../../src/auth/authenticate.js";
import { mintSecret } from "../../../src/keys/secret.js";
import { createChangeLog } from "../../../src/revocation/change-log.js";
import { createKeyCache } from "../../../src/revocation/key-cache.js";
import type { Lease } from "../../../src/revocation/lease.js";
import { snapshotBefore, writeSnapshot } from "../../../src/revocation/snapshot.js";
import { noCache } from "../../../src/storage/redis/client.js";

const present = snapshotBefore(1);
const record = {
  keyId: "key",
  workspaceId: "ws",
  name: "",
  enabled: true,
  scopes: ["*"],
  permissions: [],
  apiId: null,
  roleIds: [],
  roles: [],
  ratelimits: [],
  hasCredits: false,
  meta: {},
  expiresAt: null,
  ended: false,
  identityId: null,
  externalId: "",
  identityMeta: {},
  identityRatelimits: [],
  identityCreatedAt: new Date(0),
  identityUpdatedAt: new Date(0),
  workspaceEnabled: true,
  workspaceHasImports: false,
  snapshot: writeSnapshot(present),
};

it("a call counts as one lookup, although the lease ends before its caller is checked again", async () => {
  let remainingMs = 0;
  const ensure = async () => {
    remainingMs = 100;
  };
  const lease = { remaining: () => remainingMs, ensure } as unknown as Lease;
  const sources = {
    readKeyRecord: async () => record,
    readWorkspaceState: async () => undefined,
    makeDurable: async () => {},
  };
  const keyCache = createKeyCache(lease, createChangeLog(present, "timeline 1"), noCache, sources, 1_000_000);
  const { authenticate, recheck } = createAuthentication([], keyCache, { record() {} }, () => new Date());
  const call = { requestId: "req", deadline: Number.POSITIVE_INFINITY };
  const headers = [`Bearer ${mintSecret().plaintext}`];

  await recheck(call, await authenticate(call, headers));
  expect(keyCache.lookups.key).toEqual({ memory: 0, redis: 0, postgres: 1 });
  const caller = await authenticate(call, headers);
  remainingMs = 0;
  await recheck(call, caller);
  expect(remainingMs, "the lease was lost, and obtained again").toBe(100);
  expect(keyCache.lookups.key).toEqual({ memory: 1, redis: 0, postgres: 1 });
  expect(keyCache.lookups.workspace).toEqual({ memory: 2, redis: 0, postgres: 0 });
});
