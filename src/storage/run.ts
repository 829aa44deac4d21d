import type { PendingQuery, Row } from "postgres";
import { type Call, workFor } from "../call.js";

/** Runs a statement for a call, for as long as somebody waits for the call's answer. Stores ask by this alone. */
export function run<Rows extends readonly (Row | undefined)[]>(call: Call, statement: PendingQuery<Rows>) {
  return workFor(call, statement, () => statement.cancel());
}
