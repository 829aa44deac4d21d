/**
 * Which transactions a reading of the database includes, as PostgreSQL's `pg_snapshot` has it: all below `xmin`, none from
 * `xmax` on, and of those in between all that were not in progress.
 */
export interface Snapshot {
  readonly xmin: number;
  readonly xmax: number;
  readonly inProgress: readonly number[];
}

/** Reads what PostgreSQL writes: `xmin:xmax:xid,xid,…`. A process would have to run for ages to reach 2^53 transactions. */
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

/** Everything that was done before a transaction with this id could begin, and nothing else. */
export function snapshotBefore(xid: number): Snapshot {
  return { xmin: xid, xmax: xid, inProgress: [] };
}

/** Whether what a committed transaction has done is part of the snapshot. */
export function sees({ xmin, xmax, inProgress }: Snapshot, xid: number): boolean {
  return xid < xmin || (xid < xmax && !inProgress.includes(xid));
}

/** Whether everything that is part of one snapshot is part of the other, too. Of two readings, one includes the other. */
export function includes(later: Snapshot, earlier: Snapshot): boolean {
  if (later === earlier) return true;
  return later.xmax >= earlier.xmax && !later.inProgress.some((xid) => sees(earlier, xid));
}
