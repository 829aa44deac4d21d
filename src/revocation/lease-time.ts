import type { Database } from "../storage/postgres/database.js";
import type { Clock } from "./clock.js";
import { waitOut } from "./lease.js";

/** The two times in the table `cluster_state`, for the one who changes them. Each step is a transaction of its own. */
export interface LeaseTimes {
  /** Lets changes wait for no less than this. */
  raiseWait(ms: number): Promise<void>;
  /**
   * Sets for how long processes take a lease, if changes wait for at least that long. Tells for how long they do, and which
   * version of the row that is.
   */
  setLease(ms: number): Promise<{ readonly waitMs: number; readonly version: string } | undefined>;
  /** Lets changes wait for this long, if the row still has that version. */
  setWait(ms: number, version: string): Promise<boolean>;
}

/**
 * Changes the lease time while replicas run. Changes never wait for less than any process has a lease: the wait is raised
 * before leases are, and lowered when the last of the longer leases is over. False if somebody else has changed the row
 * meanwhile: then the lease time may be theirs, and changes may wait for longer than they need to.
 */
export async function setLeaseTime(times: LeaseTimes, ms: number, clock: Clock): Promise<boolean> {
  await times.raiseWait(ms);
  const set = await times.setLease(ms);
  if (set === undefined) return false;
  if (set.waitMs === ms) return true;
  await waitOut(set.waitMs, clock);
  return times.setWait(ms, set.version);
}

export function createLeaseTimes(db: Database): LeaseTimes {
  return {
    async raiseWait(ms) {
      await db.runInBackground((sql) => sql`update cluster_state set wait_ms = greatest(wait_ms, ${ms})`);
    },
    async setLease(ms) {
      const [row] = await db.runInBackground(
        (sql) => sql<{ waitMs: number; version: string }[]>`
        update cluster_state set lease_ms = ${ms} where wait_ms >= ${ms} returning wait_ms, xmin::text as version`,
      );
      return row;
    },
    async setWait(ms, version) {
      const { count } = await db.runInBackground(
        (sql) => sql`update cluster_state set wait_ms = ${ms} where xmin::text = ${version}`,
      );
      return count > 0;
    },
  };
}
