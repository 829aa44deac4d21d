import type { Call } from "../../call/call.js";
import type { PageRequest } from "../../pagination.js";
import type { Database } from "./database.js";
import { type Fragment, sql } from "./sql.js";

/**
 * The first rows in the order of an index, one more than the limit of the page. The limit is a parameter, which a generic
 * plan does not know: the planner would expect a tenth of all rows, and read and sort the table instead. So the largest
 * page (100) is in the statement as a literal, too.
 *
 * @param rows selects the rows, without an order
 * @param order the columns, by their names in the selection
 */
export function pageOf<Row extends object>(rows: Fragment, order: Fragment, limit: number): Fragment<Row[]> {
  return sql<Row[]>`
    select * from (${rows} order by ${order} limit 101) as page order by ${order} limit ${limit + 1}`;
}

/** How many rows a page with a filter scans. With the longest texts that takes about 40 ms, usually a tenth of it. */
const maxScanned = 5_000;

/** A page of filtered rows. */
export interface ScannedPage<Row> {
  readonly rows: readonly Row[];
  /** The id of the last scanned row, if rows may follow it. */
  readonly scannedTo: string | undefined;
}

/** A scan in the order of an index. */
export interface Scan {
  /** Selects the rows after the previous page, with the columns that the order and the filter need. */
  readonly rows: Fragment;
  /** The column of the order, and its direction. */
  readonly column: Fragment;
  readonly direction: Fragment;
  readonly filter: Fragment;
  readonly limit: number;
  /** Selects complete rows; a condition on the column follows. */
  readonly whole: Fragment;
  /** The id of a row, as an expression of its column. */
  readonly id: (column: Fragment) => Fragment;
}

/**
 * A page of rows that match a filter without an index. It scans at most the next 5,000 rows, which bounds the cost of a
 * filter that matches nothing. The page may have fewer rows than its limit, or none, although more follow; the next page
 * begins where the scan ended. The scan stops as soon as the page is full.
 */
export function scannedPageOf<Row extends object>({
  rows,
  column,
  direction,
  filter,
  limit,
  whole,
  id,
}: Scan): Fragment<(Row & ScanEnd)[]> {
  const last = sql`(select ${column} from scanned order by ${column} ${direction} offset ${maxScanned - 1} limit 1)`;
  return sql<(Row & ScanEnd)[]>`
    with scanned as materialized (${rows} limit ${maxScanned}),
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

/** The rows of a workspace that a list returns, in the order of their ids, which must be the order of an index. */
export interface Listing {
  readonly table: Fragment;
  readonly id: Fragment;
  readonly columns: Fragment;
  /** Selects the rows that the list contains. */
  readonly condition: Fragment;
  /** The column of the search. */
  readonly searched: Fragment;
}

/** A page of a list. With a search text, only rows whose searched column contains it, ignoring case. */
export async function listPage<Row extends object>(
  db: Database,
  call: Call,
  workspaceId: string,
  search: string | undefined,
  page: PageRequest,
  { table, id, columns, condition, searched }: Listing,
): Promise<ScannedPage<Row>> {
  // See listKeys for the form of this condition.
  const after = sql`
    (workspace_id, ${id}) > (${workspaceId}, ${page.after}) and workspace_id <= ${workspaceId} and ${condition}`;
  const order = sql`workspace_id, ${id}`;
  if (search === undefined) {
    const all = sql`select ${columns}, workspace_id from ${table} where ${after}`;
    const rows = await db.run(call, pageOf<Row>(all, order, page.limit));
    return { rows, scannedTo: undefined };
  }
  const rows = await db.run(
    call,
    scannedPageOf<Row>({
      rows: sql`select ${id}, ${searched} from ${table} where ${after} order by ${order}`,
      column: id,
      direction: sql`asc`,
      filter: contains(searched, search),
      limit: page.limit,
      whole: sql`select ${columns} from ${table} where ${id}`,
      id: (column) => column,
    }),
  );
  return readScannedPage(rows);
}

/** The filter that a column contains a text, ignoring case. As a subquery, the text is folded once for all rows. */
function contains(column: Fragment, text: string): Fragment {
  return sql`strpos(case_folded(${column}), (select case_folded(${text}))) > 0`;
}
