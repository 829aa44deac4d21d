import { setImmediate as nextTurn } from "node:timers/promises";
import { Worker } from "node:worker_threads";
import { expect, inject, it, onTestFinished } from "vitest";
import { createLog } from "../../../src/observe/log.js";
import { connectRedis } from "../../../src/storage/redis/client.js";
import { addressOf } from "../../support/backend-address.js";
import { redisAt } from "../../support/harness.js";

/** The timeout of a command here. The client reconnects only if Redis has not responded for ten times as long. */
const commandTimeoutMs = 300;

it("a response that arrives while the process is paused is no timeout, and Redis stays in use", async () => {
  const cache = connectRedis(redisAt(inject("redisUrl")), createLog("silent"), commandTimeoutMs);
  onTestFinished(() => cache.close());
  const storeAndRead = async () => {
    await cache.set("test:pause", "there", 60_000);
    return cache.get("test:pause");
  };
  await expect.poll(storeAndRead, { timeout: 10_000 }).toBe("there");
  const observer = openObserver(inject("redisUrl"));

  // More than the failures that open the circuit breaker.
  const responses = Array.from({ length: 10 }, () => cache.get("test:pause"));
  await nextTurn(); // the commands are sent; timers run next, before responses are read
  const resumeAt = performance.now() + 1.5 * commandTimeoutMs;
  observer.waitForResponses();
  while (performance.now() < resumeAt) {} // as a garbage collection would, for longer than the timeout of a command
  expect(await Promise.all(responses)).toEqual(responses.map(() => "there"));
  expect(cache.inUse).toBe(true);
});

/**
 * Sends two commands to Redis from another thread. After their responses, Redis has responded to the earlier commands,
 * too. Waiting for a fixed time would not suffice, as a busy machine may also pause Redis.
 */
function openObserver(url: string): { waitForResponses(): void } {
  const progress = new Int32Array(new SharedArrayBuffer(4));
  const worker = new Worker(
    `const { connect } = require("node:net");
    const { workerData: { address, progress } } = require("node:worker_threads");
    Atomics.wait(progress, 0, 0);
    const socket = connect(address, () => socket.write("PING\\r\\n"));
    socket.on("data", () => {
      Atomics.add(progress, 0, 1);
      Atomics.notify(progress, 0);
      if (progress[0] === 2) socket.write("PING\\r\\n");
    });`,
    { eval: true, workerData: { address: addressOf(url), progress } },
  );
  onTestFinished(async () => void (await worker.terminate()));
  return {
    waitForResponses() {
      Atomics.store(progress, 0, 1);
      Atomics.notify(progress, 0);
      for (let responses = 1; responses < 3; responses++) Atomics.wait(progress, 0, responses, 10_000);
    },
  };
}
