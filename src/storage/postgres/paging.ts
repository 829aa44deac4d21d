import type postgres from "postgres";
import type { Fragment, Statement } from "./connection.js";

/**
 * The first rows in an order that an index has, one more than the limit of the page. Its limit comes as a parameter, of
 * which a plan that is kept knows nothing: the planner would expect a tenth of all the rows, and rather read and sort the
 * table. So the largest page there is (100) stands in the statement, too.
 *
 * @param rows selects them, not ordered yet
 * @param order the columns, as they are called in what is selected
 */
export function pageOf<Row extends object>(
  sql: Statement,
  rows: Fragment,
  order: Fragment,
  limit: number,
): postgres.PendingQuery<Row[]> {
  return sql<Row[]>`
    select * from (${rows} order by ${order} limit 101) as page order by ${order} limit ${limit + 1}`;
}

/** How many rows a page with a filter looks through. With the longest texts to search in, that takes some 40 ms, usually a tenth. */
const mostScanned = 5_000;

/** A page of what a filter lets through. */
export interface ScannedPage<Row> {
  readonly rows: readonly Row[];
  /** The id of the last row that was looked at, if rows may follow it. */
  readonly scannedTo: string | undefined;
}

/** How to look through rows in the order of an index. */
export interface Scan {
  /** Selects all rows behind the page before: what orders them, and what the filter needs. Not ordered yet. */
  readonly rows: Fragment;
  /** The one column by which they are ordered, and its direction. */
  readonly column: Fragment;
  readonly direction: Fragment;
  readonly filter: Fragment;
  readonly limit: number;
  /** Selects whole rows; a condition on the column follows. */
  readonly whole: Fragment;
  /** The id of a row, as an expression of its column. */
  readonly id: (column: Fragment) => Fragment;
}

/**
 * A page of the rows that a filter lets through, for which there is no index: of the next 5,000 rows, and not more, so that
 * a filter that matches nothing costs no more than that. The page may have fewer rows than its limit, or none, although more
 * follow; the next page begins where the scan ended. Where the filter matches enough, only as many rows are looked at.
 */
export function scannedPageOf<Row extends object>(
  sql: Statement,
  { rows, column, direction, filter, limit, whole, id }: Scan,
): postgres.PendingQuery<(Row & ScanEnd)[]> {
  const last = sql`(select ${column} from scanned order by ${column} ${direction} offset ${mostScanned - 1} limit 1)`;
  return sql<(Row & ScanEnd)[]>`
    with scanned as materialized (${rows} limit ${mostScanned}),
      found as materialized (select ${column} from scanned where ${filter} limit ${limit + 1})
    select page.*, page.${column} is not null as found,
      case when (select count(*) from found) <= ${limit} then ${id(last)} end as scanned_to
    from (select) as one left join (${whole} in (select ${column} from found)) as page on true
    order by page.${column} ${direction}`;
}

/** What stands beside the rows of such a page. If there are none, it stands alone. */
interface ScanEnd {
  readonly found: boolean;
  readonly scannedTo: string | null;
}

/** What such a statement has found. */
export function readScannedPage<Row extends object>(found: readonly (Row & ScanEnd)[]): ScannedPage<Row> {
  return { rows: found.filter((row) => row.found), scannedTo: found[0]?.scannedTo ?? undefined };
}
