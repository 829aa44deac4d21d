import type { Log } from "../observe/log.js";
import type { ChangeLog } from "./change-log.js";
import { type Clock, systemClock } from "./clock.js";
import type { KeyCache } from "./key-cache.js";
import type { KeyState } from "./key-state.js";
import { type Snapshot, sees, writeSnapshot } from "./snapshot.js";

/** Whether PostgreSQL accepts a key now, and the transactions that last changed the key and its workspace. */
export type ReadUsable = (keyId: string) => Promise<{ usable: boolean; changedBy: readonly number[] } | undefined>;

/** The results of the checks so far. */
export interface SpotChecks {
  done: number;
  /** Keys that were accepted here although the change that revoked them was known. Must stay 0. */
  stale: number;
}

/** One acceptance in so many is checked, and at most one in this interval, so that the checks are no load. */
const sampleInterval = 100;
const minIntervalMs = 100;

/**
 * A key cache that compares a sample of its results with PostgreSQL, after they were returned. If PostgreSQL says that
 * a change had revoked the key, and this process knew of that change before the lookup, then the fence has failed.
 */
export function withSpotChecks(
  keyCache: KeyCache,
  changeLog: ChangeLog,
  readUsable: ReadUsable,
  log: Log,
  clock: Pick<Clock, "monotonic"> = systemClock,
): KeyCache & { readonly checks: SpotChecks } {
  const checks: SpotChecks = { done: 0, stale: 0 };
  let untilNext = sampleInterval;
  let notBefore = Number.NEGATIVE_INFINITY;
  let checking = false;

  async function check(keyId: string, known: Snapshot): Promise<void> {
    const now = await readUsable(keyId);
    checks.done += 1;
    if (now === undefined || now.usable || !now.changedBy.every((xid) => sees(known, xid))) return;
    checks.stale += 1;
    const details = { keyId, changedBy: now.changedBy, known: writeSnapshot(known) };
    log.error(details, "a revoked key was accepted: please report this");
  }

  function checkSample(found: KeyState | undefined, known: Snapshot): void {
    if (!found?.key.enabled || found.key.ended || !found.workspaceEnabled || --untilNext > 0) return;
    untilNext = sampleInterval;
    const now = clock.monotonic();
    if (checking || now < notBefore) return;
    notBefore = now + minIntervalMs;
    checking = true;
    // Not awaited, so that no call waits for it. If PostgreSQL is unavailable, there is nothing to compare with.
    void check(found.key.keyId, known)
      .catch(() => {})
      .finally(() => {
        checking = false;
      });
  }

  return {
    ...keyCache,
    checks,
    peek(hash) {
      const found = keyCache.peek(hash);
      checkSample(found, changeLog.present);
      return found;
    },
    async get(hash, call) {
      const known = changeLog.present;
      const found = await keyCache.get(hash, call);
      checkSample(found, known);
      return found;
    },
  };
}
