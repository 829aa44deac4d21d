/**
 * The transactions that a read of the database includes, as in PostgreSQL's `pg_snapshot`: all below `xmin`, none from
 * `xmax` on, and of those in between all that were not in progress.
 */
export interface Snapshot {
  readonly xmin: number;
  readonly xmax: number;
  readonly inProgress: readonly number[];
}

/**
 * Parses PostgreSQL's text form `xmin:xmax:xid,xid,…`. A number is exact up to 2^53 transactions, which take ages to
 * reach.
 */
export function parseSnapshot(text: string): Snapshot {
  const [xmin, xmax, inProgress = ""] = text.split(":");
  return {
    xmin: Number(xmin),
    xmax: Number(xmax),
    inProgress: inProgress === "" ? [] : inProgress.split(",").map(Number),
  };
}

export function writeSnapshot({ xmin, xmax, inProgress }: Snapshot): string {
  return `${xmin}:${xmax}:${inProgress.join()}`;
}

/** The snapshot that includes exactly the transactions with a lower id. */
export function snapshotBefore(xid: number): Snapshot {
  return { xmin: xid, xmax: xid, inProgress: [] };
}

/** Whether the snapshot includes the effects of a committed transaction. */
export function sees({ xmin, xmax, inProgress }: Snapshot, xid: number): boolean {
  return xid < xmin || (xid < xmax && !inProgress.includes(xid));
}

/**
 * Whether one snapshot includes everything that the other does. Of two snapshots that were read, one includes the
 * other.
 */
export function includes(later: Snapshot, earlier: Snapshot): boolean {
  if (later === earlier) return true;
  return later.xmax >= earlier.xmax && !later.inProgress.some((xid) => sees(earlier, xid));
}
