import { expect, it } from "vitest";
import { succeed } from "../../support/calls.js";
import { createWorkspace } from "../../support/clients/http-requests.js";
import { keyEntryOf, readLookups } from "../../support/redis-entries.js";
import { openReplicas } from "../../support/redis-replicas.js";

const replicas = openReplicas();

it("a tenant cannot fill Redis with large keys: each replica reads these from PostgreSQL, and caches them in memory", async () => {
  const { app, redis, others } = replicas;
  const { key } = await createWorkspace(app.httpUrl);
  const post = (operation: string, body: object, to = app) =>
    succeed<{ key: string }>(to.httpUrl, operation, key, body);
  const permissions = Array.from({ length: 100 }, (_, index) => `${"x".repeat(90)}.${index}`);
  const large = [
    await post("keys.createKey", { permissions }),
    await post("keys.createKey", { meta: { text: "x".repeat(16_000) } }),
  ].map((created) => created.key);
  const { key: ordinary } = await post("keys.createKey", {
    permissions: permissions.slice(0, 5),
    meta: { plan: "pro" },
  });

  const verified = [...large, ordinary];
  for (const secret of verified) await post("keys.verifyKey", { key: secret });
  await expect.poll(() => redis.exists(keyEntryOf(ordinary)), { timeout: 5_000 }).toBe(1);
  expect(await redis.exists(large.map(keyEntryOf))).toBe(0);

  const [other] = others;
  await post("keys.verifyKey", { key: ordinary }, other);
  const before = await readLookups(other);
  for (let round = 0; round < 3; round++) {
    for (const secret of large)
      expect(await post("keys.verifyKey", { key: secret }, other)).toMatchObject({ valid: true });
  }
  const after = await readLookups(other);
  expect((after["key postgres"] ?? 0) - (before["key postgres"] ?? 0)).toBe(large.length);
  expect(await redis.exists(large.map(keyEntryOf))).toBe(0);
});
