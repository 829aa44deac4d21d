import { Redis } from "ioredis";
import { afterAll, beforeAll, inject } from "vitest";
import { redisInUse } from "./clients/verify-calls.js";
import { openTestApp, type TestApp } from "./harness.js";

/** Replicas of one service, and the Redis that they share. */
export interface Replicas {
  redis: Redis;
  /** Makes the changes, and writes entries to Redis. */
  app: TestApp;
  /** Have nothing of a new workspace cached until one of its keys calls them. */
  others: [TestApp, TestApp];
}

/** Opens replicas for the tests of a file. Read the result inside tests only. */
export function openReplicas(): Replicas {
  const replicas = {} as Replicas;
  const opened: TestApp[] = [];
  // Sequentially, because starting a service is the most expensive part of these tests.
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
