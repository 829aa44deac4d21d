import { Redis } from "ioredis";
import { afterAll, beforeAll, beforeEach, describe, expect, inject, it } from "vitest";
import { createWorkspaceStates, type Fence } from "../../src/auth/workspace-states.js";
import { mintId } from "../../src/ids.js";
import type { Cache } from "../../src/storage/redis.js";
import type { WorkspaceState } from "../../src/workspaces/store.js";

let redis: Redis;
beforeAll(() => {
  redis = new Redis(inject("redisUrl"));
});
afterAll(() => redis.disconnect());

/** The fence of a workspace that last changed at this epoch, in a present far ahead. */
const since = (lastChange: bigint): Fence => ({ lastChange, present: 2n ** 60n });

const entryOf = (workspaceId: string) => `latchkey:ws:${workspaceId}`;

describe("the state of a workspace, asked of the module itself", () => {
  // The real Redis, without the service's time limit, so that a busy machine cannot make an entry go missing.
  const cache: Cache = {
    get: async (key) => (await redis.get(key)) ?? undefined,
    set: async (key, value, lifetimeMs) => {
      await redis.set(key, value, "PX", lifetimeMs);
    },
    close: () => {},
  };
  let workspaceId: string;
  let truth: WorkspaceState | undefined | Error;
  let reads: number;
  const states = () =>
    createWorkspaceStates(async () => {
      reads += 1;
      if (truth instanceof Error) throw truth;
      return truth;
    }, cache);

  beforeEach(() => {
    workspaceId = mintId("ws");
    truth = { enabled: true, epoch: 7n };
    reads = 0;
  });

  it("is read from Postgres once, and from Redis afterwards", async () => {
    expect(await states().isEnabled(workspaceId, since(3n))).toBe(true);
    expect(await states().isEnabled(workspaceId, since(3n))).toBe(true);
    expect(await states().isEnabled(workspaceId, since(7n))).toBe(true);
    expect(reads).toBe(1);
  });

  it("is read again when the workspace has changed since, and the entry is renewed", async () => {
    await states().isEnabled(workspaceId, since(3n));
    truth = { enabled: false, epoch: 8n };
    expect(await states().isEnabled(workspaceId, since(8n))).toBe(false);
    expect(await states().isEnabled(workspaceId, since(8n))).toBe(false);
    expect(reads).toBe(2);
  });

  it("compares epochs as numbers, beyond what a double can hold", async () => {
    await redis.set(entryOf(workspaceId), "enabled@9");
    truth = { enabled: false, epoch: 10n };
    expect(await states().isEnabled(workspaceId, since(10n))).toBe(false);
    await redis.set(entryOf(workspaceId), `enabled@${2n ** 53n}`);
    truth = { enabled: false, epoch: 2n ** 53n + 1n };
    expect(await states().isEnabled(workspaceId, since(2n ** 53n + 1n))).toBe(false);
  });

  it("is not believed when it claims to come from after the present", async () => {
    await redis.set(entryOf(workspaceId), "enabled@12");
    truth = { enabled: false, epoch: 11n };
    expect(await states().isEnabled(workspaceId, { lastChange: 3n, present: 11n })).toBe(false);
    await redis.set(entryOf(workspaceId), "enabled@11");
    expect(await states().isEnabled(workspaceId, { lastChange: 3n, present: 11n })).toBe(true);
  });

  it("is never enabled for a workspace that does not exist, and nothing is kept about it", async () => {
    truth = undefined;
    expect(await states().isEnabled(workspaceId, since(0n))).toBe(false);
    expect(await redis.exists(entryOf(workspaceId))).toBe(0);
  });

  it("is an error, never enabled, when Postgres fails and Redis has nothing new enough", async () => {
    await redis.set(entryOf(workspaceId), "enabled@7");
    truth = new Error("Postgres is away");
    await expect(states().isEnabled(workspaceId, since(8n))).rejects.toThrow("Postgres is away");
    await redis.del(entryOf(workspaceId));
    await expect(states().isEnabled(workspaceId, since(0n))).rejects.toThrow("Postgres is away");
  });

  it("is refreshed as a courtesy only: a failure to do so is no failure", async () => {
    truth = new Error("Postgres is away");
    await expect(states().refresh(workspaceId)).resolves.toBeUndefined();
  });

  it("is kept for a limited time", async () => {
    await states().isEnabled(workspaceId, since(0n));
    const left = await redis.pttl(entryOf(workspaceId));
    expect(left).toBeGreaterThan(0);
    expect(left).toBeLessThanOrEqual(10 * 60_000);
  });
});
