import { beforeEach, describe, expect, it, vi } from "vitest";
import { createLog } from "../../../src/observe/log.js";
import { createChangeLog } from "../../../src/revocation/change-log.js";
import type { KeyCache } from "../../../src/revocation/key-cache.js";
import type { KeyState } from "../../../src/revocation/key-state.js";
import { snapshotBefore } from "../../../src/revocation/snapshot.js";
import { type ReadUsable, withSpotChecks } from "../../../src/revocation/spot-checks.js";

const hash = "00";
const knownXid = 7;

let lines: { msg: string }[];
beforeEach(() => {
  lines = [];
});

/** A key cache that always returns the same state of one key, checked against a database with this answer. */
function withChecks(readUsable: ReadUsable, state = { enabled: true, workspaceEnabled: true }, msBetweenCalls = 1_000) {
  let ms = 0;
  const monotonic = () => {
    ms += msBetweenCalls;
    return ms;
  };
  const { enabled, workspaceEnabled } = state;
  const found = { key: { keyId: "key_1", enabled }, workspaceEnabled } as KeyState;
  const unchecked = { peek: () => undefined, get: async () => found } as unknown as KeyCache;
  const log = createLog("info", { destination: { write: (line) => lines.push(JSON.parse(line)) } });
  return withSpotChecks(unchecked, createChangeLog(snapshotBefore(knownXid + 1), "timeline"), readUsable, log, {
    monotonic,
  });
}

/** Makes enough calls for this many checks, with time for each to end. */
async function callUntilChecked(keyCache: ReturnType<typeof withChecks>, checks: number): Promise<void> {
  for (let calls = 0; calls < 150 * checks; calls++) {
    await keyCache.get(hash);
    await new Promise(setImmediate);
  }
}

describe("a spot check of an accepted key against PostgreSQL", () => {
  it("counts and logs a stale acceptance if a change known before the call had revoked the key", async () => {
    const keyCache = withChecks(async () => ({ usable: false, changedBy: [knownXid, 0] }));
    await callUntilChecked(keyCache, 1);
    expect(keyCache.checks).toEqual({ done: 1, stale: 1 });
    expect(lines).toEqual([
      expect.objectContaining({ level: 50, keyId: "key_1", msg: expect.stringMatching(/^a revoked key was accepted/) }),
    ]);
  });

  it.each([
    ["the change that revoked the key came after the call began", { usable: false, changedBy: [0, knownXid + 1] }],
    ["the key is still valid", { usable: true, changedBy: [knownXid, 0] }],
    ["the row is gone", undefined],
  ])("reports no stale acceptance if %s", async (_why, answer) => {
    const keyCache = withChecks(async () => answer);
    await callUntilChecked(keyCache, 1);
    expect(keyCache.checks).toEqual({ done: 1, stale: 0 });
    expect(lines).toEqual([]);
  });
});

describe("spot checks add no load", () => {
  it("one in a hundred accepted keys is checked", async () => {
    const readUsable = vi.fn(async () => ({ usable: true, changedBy: [0, 0] }));
    const keyCache = withChecks(readUsable);
    await callUntilChecked(keyCache, 6);
    expect(readUsable).toHaveBeenCalledTimes(9);
  });

  it("at most ten keys a second are checked, however many are accepted", async () => {
    const readUsable = vi.fn(async () => ({ usable: true, changedBy: [0, 0] }));
    const keyCache = withChecks(readUsable, undefined, 25);
    await callUntilChecked(keyCache, 6);
    // Every hundredth acceptance, here one in 25 ms, could be checked: the 1st, the 5th and the 9th are.
    expect(readUsable).toHaveBeenCalledTimes(3);
  });

  it("one check runs at a time, and no call waits for it", async () => {
    const readUsable = vi.fn(() => new Promise<never>(() => {}));
    const keyCache = withChecks(readUsable);
    await callUntilChecked(keyCache, 4);
    expect(readUsable).toHaveBeenCalledTimes(1);
  });

  it("a failure of PostgreSQL affects no call, and the next check follows", async () => {
    const readUsable = vi.fn(() => Promise.reject(new Error("unavailable")));
    const keyCache = withChecks(readUsable);
    await callUntilChecked(keyCache, 4);
    expect(readUsable.mock.calls.length).toBeGreaterThan(3);
    expect(keyCache.checks).toEqual({ done: 0, stale: 0 });
  });

  it.each([
    ["a disabled key", { enabled: false, workspaceEnabled: true }],
    ["a key of a disabled workspace", { enabled: true, workspaceEnabled: false }],
  ])("%s is refused, and not checked", async (_what, state) => {
    const readUsable = vi.fn(async () => ({ usable: false, changedBy: [0, 0] }));
    await callUntilChecked(withChecks(readUsable, state), 2);
    expect(readUsable).not.toHaveBeenCalled();
  });
});
