import type { Row } from "./row.js";
import { httpVerify } from "./rows/http-verify.js";

/** All rows, in the order of the table. */
export const rows: readonly Row[] = [httpVerify];
