import type { Log } from "../observe/log.js";
import type { ChangeLog } from "./change-log.js";
import { type Clock, systemClock } from "./clock.js";
import type { KeyCache } from "./key-cache.js";
import type { KeyState } from "./key-state.js";
import { type Snapshot, sees, writeSnapshot } from "./snapshot.js";

/** Whether a key is good for anything now, by Postgres, and the transactions that last changed it and its workspace. */
export type ReadUsable = (keyId: string) => Promise<{ usable: boolean; changedBy: readonly number[] } | undefined>;

/** What the checks have found so far. */
export interface SpotChecks {
  done: number;
  /** Keys that were good here although the change that ended them was known: to stay 0. */
  stale: number;
}

/** One in so many is checked, and no more than this often, so that the checks are no load. */
const oneIn = 100;
const leastBetweenMs = 100;

/**
 * Holdings whose answers are held against Postgres now and then, after they were given. If Postgres says that the key
 * was ended by a change which this process knew of before it was asked, the fence has failed.
 */
export function withSpotChecks(
  holdings: KeyCache,
  changes: ChangeLog,
  readUsable: ReadUsable,
  log: Log,
  clock: Pick<Clock, "monotonic"> = systemClock,
): KeyCache & { readonly checks: SpotChecks } {
  const checks: SpotChecks = { done: 0, stale: 0 };
  let untilNext = oneIn;
  let notBefore = Number.NEGATIVE_INFINITY;
  let checking = false;

  async function check(keyId: string, known: Snapshot): Promise<void> {
    const now = await readUsable(keyId);
    checks.done += 1;
    if (now === undefined || now.usable || !now.changedBy.every((xid) => sees(known, xid))) return;
    checks.stale += 1;
    const details = { keyId, changedBy: now.changedBy, known: writeSnapshot(known) };
    log.error(details, "a key was accepted after its end: please report this");
  }

  function checkNowAndThen(found: KeyState | undefined, known: Snapshot): void {
    if (!found?.key.enabled || found.key.ended || !found.workspaceEnabled || --untilNext > 0) return;
    untilNext = oneIn;
    const now = clock.monotonic();
    if (checking || now < notBefore) return;
    notBefore = now + leastBetweenMs;
    checking = true;
    // Not waited for; and if Postgres is away, there is nothing to check against.
    void check(found.key.keyId, known)
      .catch(() => {})
      .finally(() => {
        checking = false;
      });
  }

  return {
    ...holdings,
    checks,
    peek(hash) {
      const found = holdings.peek(hash);
      checkNowAndThen(found, changes.present);
      return found;
    },
    async get(hash, call) {
      const known = changes.present;
      const found = await holdings.get(hash, call);
      checkNowAndThen(found, known);
      return found;
    },
  };
}
