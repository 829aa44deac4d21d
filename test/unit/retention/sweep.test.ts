import { expect, it, onTestFinished } from "vitest";
import { createLog } from "../../../src/observe/log.js";
import type { RetentionStore } from "../../../src/retention/store.js";
import { startSweep } from "../../../src/retention/sweep.js";

it("rows of one kind that cannot be removed do not keep those of other kinds from being removed, and are logged", async () => {
  const lines: { msg: string }[] = [];
  const log = createLog("warn", { destination: { write: (line) => lines.push(JSON.parse(line)) } });
  const swept = new Set<string>();
  const store = new Proxy({} as RetentionStore, {
    get: (_store, kind: string) => async () => {
      if (kind === "keysOfApis") throw new Error("canceling statement due to statement timeout");
      swept.add(kind);
      return { rows: 1, mayHaveMore: false };
    },
  });
  const erasure = { eraseWorkspaces: async () => ({ rows: 0, mayHaveMore: false }) };
  const days = { auditDays: 1, deletedDays: 1, usageDays: 1 };
  const sweep = startSweep(store, erasure, { ...days, everyMs: 10, log });
  onTestFinished(sweep.stop);
  await expect.poll(() => [...swept]).toContain("idempotencyRecords");
  expect([...swept]).toEqual(expect.arrayContaining(["auditEvents", "keys", "identities", "roles", "apis"]));
  await expect.poll(() => lines.map(({ msg }) => msg)).toEqual(["cannot remove expired rows; retrying every minute"]);
});
