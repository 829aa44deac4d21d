import { pino } from "pino";
import { beforeEach, describe, expect, it, vi } from "vitest";
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

/** Holdings that always answer the same about the one key, checked against a database that says this. */
function checked(readUsable: ReadUsable, standing = { enabled: true, workspaceEnabled: true }, msBetweenCalls = 1_000) {
  let ms = 0;
  const monotonic = () => {
    ms += msBetweenCalls;
    return ms;
  };
  const { enabled, workspaceEnabled } = standing;
  const found = { key: { keyId: "key_1", enabled }, workspaceEnabled } as KeyState;
  const held = { peek: () => undefined, get: async () => found } as unknown as KeyCache;
  const log = pino({ level: "info" }, { write: (line) => lines.push(JSON.parse(line)) });
  return withSpotChecks(held, createChangeLog(snapshotBefore(knownXid + 1), "history"), readUsable, log, { monotonic });
}

/** Enough calls for so many checks, with time for each to end. */
async function findUntilChecked(holdings: ReturnType<typeof checked>, checks: number): Promise<void> {
  for (let calls = 0; calls < 150 * checks; calls++) {
    await holdings.get(hash);
    await new Promise(setImmediate);
  }
}

describe("an acceptance that is held against Postgres", () => {
  it("is stale if the key had ended by a change that was known before the call: that is counted and logged", async () => {
    const holdings = checked(async () => ({ usable: false, changedBy: [knownXid, 0] }));
    await findUntilChecked(holdings, 1);
    expect(holdings.checks).toEqual({ done: 1, stale: 1 });
    expect(lines).toEqual([
      expect.objectContaining({ level: 50, keyId: "key_1", msg: expect.stringMatching(/^a key was accepted after/) }),
    ]);
  });

  it.each([
    ["the key ended by a change that came after the call began", { usable: false, changedBy: [0, knownXid + 1] }],
    ["the key is still good", { usable: true, changedBy: [knownXid, 0] }],
    ["the row is gone", undefined],
  ])("is not stale if %s", async (_why, answer) => {
    const holdings = checked(async () => answer);
    await findUntilChecked(holdings, 1);
    expect(holdings.checks).toEqual({ done: 1, stale: 0 });
    expect(lines).toEqual([]);
  });
});

describe("the checks are no load", () => {
  it("one in a hundred acceptances is checked", async () => {
    const readUsable = vi.fn(async () => ({ usable: true, changedBy: [0, 0] }));
    const holdings = checked(readUsable);
    await findUntilChecked(holdings, 6);
    expect(readUsable).toHaveBeenCalledTimes(9);
  });

  it("no more than ten a second are, however many there are", async () => {
    const readUsable = vi.fn(async () => ({ usable: true, changedBy: [0, 0] }));
    const holdings = checked(readUsable, undefined, 25);
    await findUntilChecked(holdings, 6);
    // Of every hundredth acceptance, which here come every 25 ms: the 1st, the 5th and the 9th.
    expect(readUsable).toHaveBeenCalledTimes(3);
  });

  it("one at a time, and no call waits for it", async () => {
    const readUsable = vi.fn(() => new Promise<never>(() => {}));
    const holdings = checked(readUsable);
    await findUntilChecked(holdings, 4);
    expect(readUsable).toHaveBeenCalledTimes(1);
  });

  it("a Postgres that fails harms nobody, and is asked again", async () => {
    const readUsable = vi.fn(() => Promise.reject(new Error("away")));
    const holdings = checked(readUsable);
    await findUntilChecked(holdings, 4);
    expect(readUsable.mock.calls.length).toBeGreaterThan(3);
    expect(holdings.checks).toEqual({ done: 0, stale: 0 });
  });

  it.each([
    ["a disabled key", { enabled: false, workspaceEnabled: true }],
    ["a key of a disabled workspace", { enabled: true, workspaceEnabled: false }],
  ])("%s is refused anyway, and not checked", async (_what, standing) => {
    const readUsable = vi.fn(async () => ({ usable: false, changedBy: [0, 0] }));
    await findUntilChecked(checked(readUsable, standing), 2);
    expect(readUsable).not.toHaveBeenCalled();
  });
});
