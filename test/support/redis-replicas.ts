import { Redis } from "ioredis";
import { afterAll, beforeAll, inject } from "vitest";
import { redisInUse } from "./clients/verify-calls.js";
import { openTestApp, type TestApp } from "./harness.js";

/** Replicas of one service, and the Redis that they share. */
export interface Replicas {
  redis: Redis;
  /** Makes the changes, and leaves entries in Redis. */
  app: TestApp;
  /** Hold nothing of a new workspace until they are called with one of its keys. */
  others: [TestApp, TestApp];
}

/** Opens replicas for the tests of a file, which are to read them inside their tests. */
export function openReplicas(): Replicas {
  const replicas = {} as Replicas;
  const opened: TestApp[] = [];
  // One after the other: a start is the heaviest thing that these tests do.
  const open = async (databaseUrl?: string) => {
    const app = await openTestApp({ metricsPort: 0, ...(databaseUrl && { databaseUrl }) });
    opened.unshift(app);
    await redisInUse(app);
    return app;
  };

  beforeAll(async () => {
    replicas.redis = new Redis(inject("redisUrl"));
    replicas.app = await open();
    const { databaseUrl } = replicas.app;
    replicas.others = [await open(databaseUrl), await open(databaseUrl)];
  });
  afterAll(async () => {
    replicas.redis.disconnect();
    for (const app of opened) await app.close();
  });
  return replicas;
}
