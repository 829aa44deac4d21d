import type { Database } from "../storage/postgres/database.js";
import { sql } from "../storage/postgres/sql.js";
import type { Clock } from "./clock.js";
import { waitOut } from "./lease.js";

/** Access to the two times in the table `cluster_state`. Each step is a transaction of its own. */
export interface LeaseTimes {
  /** Makes changes wait for at least this long. */
  raiseWait(ms: number): Promise<void>;
  /**
   * Sets the lease time of all processes, if changes wait for at least that long. Returns how long changes wait, and
   * the version of the row; undefined if changes wait for less.
   */
  setLease(ms: number): Promise<{ readonly waitMs: number; readonly version: string } | undefined>;
  /** Makes changes wait for this long, if the row still has that version. */
  setWait(ms: number, version: string): Promise<boolean>;
}

/**
 * Changes the lease time while replicas run. Changes never wait for less than the longest lease of any process: the
 * wait is raised before the lease time, and lowered only after the last of the longer leases has ended. Returns false
 * if another operator has changed the row meanwhile. The lease time may then be that operator's, and changes may wait
 * for longer than necessary.
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
      await db.runInBackground(sql`update cluster_state set wait_ms = greatest(wait_ms, ${ms})`);
    },
    async setLease(ms) {
      const [row] = await db.runInBackground(
        sql<{ waitMs: number; version: string }[]>`
          update cluster_state set lease_ms = ${ms} where wait_ms >= ${ms} returning wait_ms, xmin::text as version`,
      );
      return row;
    },
    async setWait(ms, version) {
      const { count } = await db.runInBackground(
        sql`update cluster_state set wait_ms = ${ms} where xmin::text = ${version}`,
      );
      return count > 0;
    },
  };
}
