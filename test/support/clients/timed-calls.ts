import { toBinary } from "@bufbuild/protobuf";
import { status } from "@grpc/grpc-js";
import { expect } from "vitest";
import type { TestApp } from "../harness.js";
import { type OperationName, operationOf, pathOf } from "../operations.js";
import { median, startStopwatch } from "../stopwatch.js";
import { callUnaryOnce } from "./grpc-js.js";
import { headersOf } from "./headers.js";
import { expectError, post } from "./http-requests.js";
import { toRequestMessage } from "./messages.js";
import type { CallRequest } from "./protocol-client.js";

/**
 * The outcome of a call over any protocol, as the name of its gRPC status, and its duration without the delay that a
 * busy machine added.
 */
export interface CallOutcome {
  readonly outcome: string;
  readonly ms: number;
}

/** Calls over HTTP. A 503 must have a Retry-After header, and no detail about the backend. */
export async function callHttp(
  app: TestApp,
  operation: OperationName,
  credential: string,
  request: CallRequest = {},
): Promise<CallOutcome> {
  const elapsed = startStopwatch();
  const [[, path]] = operationOf(operation).routes;
  const response = await post(app.httpUrl, path, credential, request);
  const ms = elapsed();
  if (response.status === 503) {
    expectError(response, 503, "application/service_unavailable");
    expect(Number(response.headers["retry-after"])).toBeGreaterThan(0);
    expect(response.text).not.toMatch(/ECONN|127\.0\.0\.1:\d+ /);
  }
  return { outcome: outcomes[response.status] ?? `HTTP ${response.status} ${response.text}`, ms };
}

const outcomes: Readonly<Record<number, string>> = { 200: "OK", 503: "UNAVAILABLE", 504: "DEADLINE_EXCEEDED" };

/** Calls over gRPC, on a new connection. */
export async function callGrpc(
  app: TestApp,
  operation: OperationName,
  credential: string,
  request: CallRequest = {},
  deadlineMs?: number,
): Promise<CallOutcome> {
  const { rpc } = operationOf(operation);
  const message = toBinary(rpc.input, toRequestMessage(rpc.input, request));
  const options = deadlineMs === undefined ? {} : { deadline: Date.now() + deadlineMs };
  const elapsed = startStopwatch();
  const { error } = await callUnaryOnce(app.grpcAddress, pathOf(rpc), headersOf(credential), message, options);
  const outcome = status[error?.code ?? status.OK] ?? "";
  return { outcome, ms: elapsed() };
}

/** The median duration of several calls. */
export function medianMs(calls: readonly CallOutcome[]): number {
  return median(calls.map(({ ms }) => ms));
}
