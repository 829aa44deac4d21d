import { expect, it, onTestFinished } from "vitest";
import { succeed } from "../../support/calls.js";
import { disable, enable, redisInUse } from "../../support/clients/verify-calls.js";
import { openTestApp, redisAt } from "../../support/harness.js";
import {
  askBoth,
  createShared,
  keyEntryOf,
  outcomes,
  shareKey,
  workspaceEntryOf,
} from "../../support/redis-entries.js";
import { findServer, startNode } from "../../support/redis-nodes.js";

it("a stale copy that takes the place of its primary is not believed", { timeout: 60_000 }, async (context) => {
  const program = findServer(context);
  const primary = await startNode(program);
  const copy = await startNode(program, { replicaof: `127.0.0.1 ${primary.port}` });
  const open = async (databaseUrl?: string) => {
    const app = await openTestApp({ redis: redisAt(primary.url), ...(databaseUrl && { databaseUrl }) });
    onTestFinished(() => app.close());
    await redisInUse(app);
    return app;
  };
  const app = await open();
  const holders = [app, await open(app.databaseUrl)] as const;
  const strangers = [await open(app.databaseUrl), await open(app.databaseUrl)] as const;

  const disabled = await createShared(app, primary.redis);
  const enabled = await createShared(app, primary.redis);
  const changed = await createShared(app, primary.redis);
  const reader = await succeed<{ keyId: string; key: string }>(app.httpUrl, "keys.createKey", changed.key, {
    scopes: ["keys.read"],
  });
  await disable(app, enabled.workspaceId);
  await expect.poll(() => primary.redis.get(workspaceEntryOf(enabled.workspaceId))).toContain(".disabled@");
  const readerEntry = await shareKey(app, primary.redis, reader.key);
  for (const { key } of [disabled, enabled, changed, reader]) await askBoth(holders, key);
  await expect.poll(() => copy.redis.get(keyEntryOf(reader.key)), { timeout: 15_000 }).toBe(readerEntry);

  // The copy loses sight of its primary, and so of these changes.
  await copy.redis.replicaof("127.0.0.1", 1);
  await disable(app, disabled.workspaceId);
  await enable(app, enabled.workspaceId);
  await succeed(app.httpUrl, "keys.updateKey", changed.key, { keyId: reader.keyId, scopes: [] });
  const expectRightAnswers = async (replicas: typeof holders) => {
    expect(await askBoth(replicas, disabled.key)).toEqual(outcomes.workspaceDisabled);
    expect(await askBoth(replicas, enabled.key)).toEqual(outcomes.served);
    expect(await askBoth(replicas, reader.key)).toEqual(outcomes.notPermitted);
  };

  // Where the primary was, there is now the copy: at first one that takes no writes, as during a failover.
  await primary.kill();
  await expectRightAnswers(holders);
  await copy.redis.config("SET", "port", primary.port);
  for (const each of [...holders, ...strangers]) await redisInUse(each);
  expect(await copy.redis.get(workspaceEntryOf(disabled.workspaceId))).toBe(disabled.workspaceEntry);
  expect(await copy.redis.get(keyEntryOf(reader.key))).toBe(readerEntry);
  await expectRightAnswers(holders);
  await copy.redis.replicaof("NO", "ONE");
  await expectRightAnswers(strangers);

  // From now on it is a Redis like any other.
  await expect.poll(() => copy.redis.get(keyEntryOf(reader.key))).not.toBe(readerEntry);
  await disable(app, enabled.workspaceId);
  for (const replicas of [holders, strangers]) {
    expect(await askBoth(replicas, enabled.key)).toEqual(outcomes.workspaceDisabled);
  }
});
