import { expect, it } from "vitest";
import { createAuthentication } from "../../../src/auth/authenticate.js";
import { mintSecret } from "../../../src/keys/secret.js";
import { createChangeLog } from "../../../src/revocation/change-log.js";
import { createKeyCache } from "../../../src/revocation/key-cache.js";
import type { Lease } from "../../../src/revocation/lease.js";
import { snapshotBefore, writeSnapshot } from "../../../src/revocation/snapshot.js";
import { noCache } from "../../../src/storage/redis/client.js";

const present = snapshotBefore(1);
const standing = {
  keyId: "key",
  workspaceId: "ws",
  name: "",
  enabled: true,
  scopes: ["*"],
  permissions: [],
  meta: {},
  expiresAt: null,
  ended: false,
  identityId: null,
  externalId: "",
  identityMeta: {},
  identityCreatedAt: new Date(0),
  identityUpdatedAt: new Date(0),
  workspaceEnabled: true,
  snapshot: writeSnapshot(present),
};

it("a call is counted as one lookup, although the lease ends before its caller is checked again", async () => {
  let left = 0;
  const ensure = async () => {
    left = 100;
  };
  const lease = { remaining: () => left, ensure } as unknown as Lease;
  const sources = {
    readKeyRecord: async () => standing,
    readWorkspaceState: async () => undefined,
    makeDurable: async () => {},
  };
  const holdings = createKeyCache(lease, createChangeLog(present, "the one"), noCache, sources, 1_000_000);
  const { authenticate, recheck } = createAuthentication("operator", holdings, { record() {} }, () => new Date());
  const call = { requestId: "req", deadline: Number.POSITIVE_INFINITY };
  const headers = [`Bearer ${mintSecret().plaintext}`];

  await recheck(call, await authenticate(call, headers));
  expect(holdings.lookups.key).toEqual({ memory: 0, redis: 0, postgres: 1 });
  const caller = await authenticate(call, headers);
  left = 0;
  await recheck(call, caller);
  expect(left, "the lease was lost, and got again").toBe(100);
  expect(holdings.lookups.key).toEqual({ memory: 1, redis: 0, postgres: 1 });
  expect(holdings.lookups.workspace).toEqual({ memory: 2, redis: 0, postgres: 0 });
});
