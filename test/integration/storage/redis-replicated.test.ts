import { expect, it, onTestFinished } from "vitest";
import { succeed } from "../../support/calls.js";
import { disable, enable, redisInUse } from "../../support/clients/verify-calls.js";
import { openTestApp, redisAt } from "../../support/harness.js";
import {
  cacheKey,
  callBoth,
  createCachedWorkspace,
  keyEntryOf,
  outcomes,
  workspaceEntryOf,
} from "../../support/redis-entries.js";
import { findServer, startNode } from "../../support/redis-nodes.js";

it("Redis failover to a stale replica: no stale entry is used", { timeout: 60_000 }, async (context) => {
  const binary = findServer(context);
  const primary = await startNode(binary);
  const redisReplica = await startNode(binary, { replicaof: `127.0.0.1 ${primary.port}` });
  const open = async (databaseUrl?: string) => {
    const app = await openTestApp({ redis: redisAt(primary.url), ...(databaseUrl && { databaseUrl }) });
    onTestFinished(() => app.close());
    await redisInUse(app);
    return app;
  };
  const app = await open();
  // Services with cached key state, and services without.
  const warm = [app, await open(app.databaseUrl)] as const;
  const cold = [await open(app.databaseUrl), await open(app.databaseUrl)] as const;

  const disabled = await createCachedWorkspace(app, primary.redis);
  const enabled = await createCachedWorkspace(app, primary.redis);
  const changed = await createCachedWorkspace(app, primary.redis);
  const reader = await succeed<{ keyId: string; key: string }>(app.httpUrl, "keys.createKey", changed.key, {
    scopes: ["keys.read"],
  });
  await disable(app, enabled.workspaceId);
  await callBoth(warm, enabled.key); // a lookup after the change writes the new entry
  await expect.poll(() => primary.redis.get(workspaceEntryOf(enabled.workspaceId))).toContain(".disabled@");
  const readerEntry = await cacheKey(app, primary.redis, reader.key);
  for (const { key } of [disabled, enabled, changed, reader]) await callBoth(warm, key);
  await expect.poll(() => redisReplica.redis.get(keyEntryOf(reader.key)), { timeout: 15_000 }).toBe(readerEntry);

  // The Redis replica is disconnected from its primary, and misses these changes.
  await redisReplica.redis.replicaof("127.0.0.1", 1);
  await disable(app, disabled.workspaceId);
  await enable(app, enabled.workspaceId);
  await succeed(app.httpUrl, "keys.updateKey", changed.key, { keyId: reader.keyId, scopes: [] });
  const expectCurrentResponses = async (services: typeof warm) => {
    expect(await callBoth(services, disabled.key)).toEqual(outcomes.workspaceDisabled);
    expect(await callBoth(services, enabled.key)).toEqual(outcomes.served);
    expect(await callBoth(services, reader.key)).toEqual(outcomes.notPermitted);
  };

  // The Redis replica takes over the address of the primary. At first it accepts no writes, as during a failover.
  await primary.kill();
  await expectCurrentResponses(warm);
  await redisReplica.redis.config("SET", "port", primary.port);
  for (const each of [...warm, ...cold]) await redisInUse(each);
  expect(await redisReplica.redis.get(workspaceEntryOf(disabled.workspaceId))).toBe(disabled.workspaceEntry);
  expect(await redisReplica.redis.get(keyEntryOf(reader.key))).toBe(readerEntry);
  await expectCurrentResponses(warm);
  await redisReplica.redis.replicaof("NO", "ONE");
  await expectCurrentResponses(cold);

  // From now on it is an ordinary primary.
  await expect.poll(() => redisReplica.redis.get(keyEntryOf(reader.key))).not.toBe(readerEntry);
  await disable(app, enabled.workspaceId);
  for (const services of [warm, cold]) {
    expect(await callBoth(services, enabled.key)).toEqual(outcomes.workspaceDisabled);
  }
});
