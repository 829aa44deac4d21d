import type { Row } from "./row.js";
import { grpcConnect, grpcVerify } from "./rows/grpc-verify.js";
import { httpVerify } from "./rows/http-verify.js";

/** All rows, in the order of the table. */
export const rows: readonly Row[] = [httpVerify, grpcVerify, grpcConnect];
