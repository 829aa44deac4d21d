import type postgres from "postgres";
import type { Fragment, Sql } from "./postgres.js";

/**
 * The first rows in an order that an index has, one more than the limit of the page. Its limit comes as a parameter, of
 * which a plan that is kept knows nothing: the planner would expect a tenth of all the rows, and rather read and sort the
 * table. So the largest page there is (100) stands in the statement, too.
 *
 * @param rows selects them, not ordered yet
 * @param order the columns, as they are called in what is selected
 */
export function pageOf<Row extends object>(
  sql: Sql,
  rows: Fragment,
  order: Fragment,
  limit: number,
): postgres.PendingQuery<Row[]> {
  return sql<Row[]>`
    select * from (${rows} order by ${order} limit 101) as page order by ${order} limit ${limit + 1}`;
}
