import { setTimeout as sleep } from "node:timers/promises";
import { beforeEach, describe, expect, it } from "vitest";
import { succeed } from "../../support/calls.js";
import { disable, enable, listKeys, redisInUse } from "../../support/clients/verify-calls.js";
import { openTestApp } from "../../support/harness.js";
import {
  type CachedWorkspace,
  cacheKey,
  callBoth,
  createCachedWorkspace,
  keyEntryOf,
  outcomes,
  workspaceEntryOf,
} from "../../support/redis-entries.js";
import { openReplicas } from "../../support/redis-replicas.js";

const replicas = openReplicas();
let home: CachedWorkspace;
/** A second key, so that it can change while the first one stays authorized. */
let reader: { keyId: string; key: string };

beforeEach(async () => {
  home = await createCachedWorkspace(replicas.app, replicas.redis);
  reader = await succeed(replicas.app.httpUrl, "keys.createKey", home.key, { scopes: ["keys.read"] });
});

/** Restores every Redis entry after `act`, byte for byte as it was before. */
async function replayAfter(act: () => Promise<unknown>): Promise<void> {
  const keyEntry = await cacheKey(replicas.app, replicas.redis, reader.key);
  const workspaceEntry = (await replicas.redis.get(workspaceEntryOf(home.workspaceId))) ?? "";
  expect(workspaceEntry).not.toBe("");
  await act();
  await replicas.redis.set(keyEntryOf(reader.key), keyEntry);
  await replicas.redis.set(workspaceEntryOf(home.workspaceId), workspaceEntry);
}

const change = (operation: string, body: object) => () =>
  succeed(replicas.app.httpUrl, operation, home.key, { keyId: reader.keyId, ...body });

describe("replayed Redis entries on a replica that has not cached the key", () => {
  it("do not undo a disable", async () => {
    await replayAfter(() => disable(replicas.app, home.workspaceId));
    expect(await callBoth(replicas.others, reader.key)).toEqual(outcomes.workspaceDisabled);
  });

  it("do not undo an enable", async () => {
    await disable(replicas.app, home.workspaceId);
    await listKeys(replicas.app, reader.key);
    await expect.poll(() => replicas.redis.get(workspaceEntryOf(home.workspaceId))).toContain(".disabled@");
    await replayAfter(() => enable(replicas.app, home.workspaceId));
    expect(await replicas.redis.get(keyEntryOf(reader.key))).toContain('"workspaceEnabled":false');
    expect(await callBoth(replicas.others, reader.key)).toEqual(outcomes.served);
  });

  it.each([
    ["a key being disabled", "keys.updateKey", { enabled: false }, outcomes.keyDisabled],
    ["a key losing its scopes", "keys.updateKey", { scopes: [] }, outcomes.notPermitted],
    ["a key being deleted", "keys.deleteKey", {}, outcomes.keyUnknown],
    ["a key being rerolled", "keys.rerollKey", {}, outcomes.keyExpired],
  ])("do not undo %s", async (_what, operation, body, outcome) => {
    await replayAfter(change(operation, body));
    expect(await callBoth(replicas.others, reader.key)).toEqual(outcome);
  });

  it("do not undo a key being enabled again", async () => {
    await change("keys.updateKey", { enabled: false })();
    await replayAfter(change("keys.updateKey", { enabled: true }));
    expect(await callBoth(replicas.others, reader.key)).toEqual(outcomes.served);
  });

  it("do not undo an expiry that was brought forward", async () => {
    const expires = Date.now() + 1_000;
    await replayAfter(change("keys.updateKey", { expires }));
    await sleep(expires - Date.now() + 1);
    expect(await callBoth(replicas.others, reader.key)).toEqual(outcomes.keyExpired);
  });
});

it("replayed Redis entries do not undo a change on a replica that has cached the key", async () => {
  expect(await callBoth(replicas.others, reader.key)).toEqual(outcomes.served);
  await replayAfter(() => disable(replicas.app, home.workspaceId));
  expect(await callBoth(replicas.others, reader.key)).toEqual(outcomes.workspaceDisabled);
  await replayAfter(() => enable(replicas.app, home.workspaceId));
  expect(await callBoth(replicas.others, reader.key)).toEqual(outcomes.served);
  await replayAfter(change("keys.updateKey", { enabled: false }));
  expect(await callBoth(replicas.others, reader.key)).toEqual(outcomes.keyDisabled);
});

it("a replica that starts after the changes does not use entries from before them", async () => {
  await replayAfter(change("keys.updateKey", { scopes: [] }));
  const late = await openTestApp({ databaseUrl: replicas.app.databaseUrl });
  try {
    await redisInUse(late);
    expect((await listKeys(late, reader.key)).status).toBe(403);
  } finally {
    await late.close();
  }
});
