import { setImmediate as turn } from "node:timers/promises";
import { Worker } from "node:worker_threads";
import { expect, inject, it, onTestFinished } from "vitest";
import { createLog } from "../../../src/observe/log.js";
import { connectRedis } from "../../../src/storage/redis/client.js";
import { addressOf } from "../../support/backend-address.js";
import { redisAt } from "../../support/harness.js";

/** How long a command may take here: Redis has ten times as long to answer before it is connected to anew. */
const limitMs = 300;

it("an answer that came while the process paused is no late answer, and Redis stays in use", async () => {
  const cache = connectRedis(redisAt(inject("redisUrl")), createLog("silent"), limitMs);
  onTestFinished(() => cache.close());
  const stored = async () => {
    await cache.set("test:pause", "there", 60_000);
    return cache.get("test:pause");
  };
  await expect.poll(stored, { timeout: 10_000 }).toBe("there");
  const witness = openWitness(inject("redisUrl"));

  // More of them than the breaker forgives.
  const answers = Array.from({ length: 10 }, () => cache.get("test:pause"));
  await turn(); // they are sent; timers come next, before what arrives
  const resumeAt = performance.now() + 1.5 * limitMs;
  witness.waitForAnswers();
  while (performance.now() < resumeAt) {} // as a collection of garbage would, for longer than a command may take
  expect(await Promise.all(answers)).toEqual(answers.map(() => "there"));
  expect(cache.inUse).toBe(true);
});

/**
 * Asks Redis from another thread, twice: by then it has answered what was asked before. A busy machine may pause Redis,
 * too, so time alone does not tell.
 */
function openWitness(url: string): { waitForAnswers(): void } {
  const seen = new Int32Array(new SharedArrayBuffer(4));
  const worker = new Worker(
    `const { connect } = require("node:net");
    const { workerData: { address, seen } } = require("node:worker_threads");
    Atomics.wait(seen, 0, 0);
    const socket = connect(address, () => socket.write("PING\\r\\n"));
    socket.on("data", () => {
      Atomics.add(seen, 0, 1);
      Atomics.notify(seen, 0);
      if (seen[0] === 2) socket.write("PING\\r\\n");
    });`,
    { eval: true, workerData: { address: addressOf(url), seen } },
  );
  onTestFinished(async () => void (await worker.terminate()));
  return {
    waitForAnswers() {
      Atomics.store(seen, 0, 1);
      Atomics.notify(seen, 0);
      for (let answers = 1; answers < 3; answers++) Atomics.wait(seen, 0, answers, 10_000);
    },
  };
}
