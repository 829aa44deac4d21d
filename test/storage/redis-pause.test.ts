import { setImmediate as turn } from "node:timers/promises";
import { expect, inject, it, onTestFinished } from "vitest";
import { createLog } from "../../src/observe/log.js";
import { connectRedis } from "../../src/storage/redis.js";
import { redisAt } from "../harness.js";

// Again if it fails: on a busy machine Redis may be paused, too.
it("an answer that came while the process paused is no late answer, and Redis stays in use", { retry: 2 }, async () => {
  const cache = connectRedis(redisAt(inject("redisUrl")), createLog("silent"));
  onTestFinished(() => cache.close());
  // Until it has been stored: on a busy machine some writes are given up.
  const stored = async () => {
    await cache.set("test:pause", "there", 60_000);
    return cache.get("test:pause");
  };
  await expect.poll(stored, { timeout: 10_000 }).toBe("there");

  // More of them than the breaker forgives.
  const answers = Array.from({ length: 10 }, () => cache.get("test:pause"));
  await turn(); // they are sent; timers come next, before what arrives
  const resumeAt = performance.now() + 250;
  while (performance.now() < resumeAt) {} // as a collection of garbage would, for longer than a command may take
  expect(await Promise.all(answers)).toEqual(answers.map(() => "there"));
  expect(cache.inUse).toBe(true);
});
