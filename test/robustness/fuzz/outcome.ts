import { STATUS_CODES } from "node:http";
import { brotliDecompressSync, gunzipSync } from "node:zlib";
import { fromBinary, fromJson, type MessageShape } from "@bufbuild/protobuf";
import { BadRequestSchema, ErrorInfoSchema } from "../../../gen/google/rpc/error_details_pb.js";
import { type ApiErrorCode, catalogue, errorCodes, grpcStatusOf, pathOf, reasonOf } from "../../../src/errors.js";
import { toComparable } from "../../support/clients/messages.js";
import type { RawResponse } from "../../support/clients/sockets.js";
import { findConnectDetail, findDetail, parseStatusDetails } from "../../support/clients/status-details.js";
import type { Operation } from "./operations.js";

/** The result of a request: data, or an error of the catalogue. */
export type Outcome = Accepted | Refused;

export interface Accepted {
  readonly ok: true;
  readonly requestId: string;
  /** The response in the field names of HTTP/JSON. */
  readonly response: Readonly<Record<string, unknown>>;
}

export interface Refused {
  readonly ok: false;
  readonly requestId: string;
  /** `<category>/<code>`. */
  readonly code: string;
  readonly locations: readonly string[];
}

const requestIdForm = /^req_[0-9a-z]{26}$/;

/** Reads a response, and throws if anything about it violates the documentation. */
export function readOutcome(operation: Operation, response: RawResponse): Outcome {
  const outcome = readByProtocol(operation, decompressed(response));
  if (outcome.ok) return outcome;
  const { code, locations } = outcome;
  check(code !== "application/invalid_input" || locations.length > 0, "invalid_input without a location");
  check(
    locations.every((location) => location !== ""),
    "an error has an empty location",
  );
  return outcome;
}

/** Connect compresses the response like the request. */
function decompressed(response: RawResponse): RawResponse {
  const decompress = { gzip: gunzipSync, br: brotliDecompressSync }[response.headers["content-encoding"] ?? ""];
  return decompress ? { ...response, body: decompress(response.body) } : response;
}

function readByProtocol(operation: Operation, response: RawResponse): Outcome {
  const type = response.headers["content-type"] ?? "";
  if (response.headers["grpc-status"] !== undefined) return readGrpc(operation, response);
  if (type.startsWith("application/grpc")) return readGrpcWeb(operation, response);
  if (type.startsWith("application/proto")) {
    return accepted(response, toComparable(operation.rpc.output, fromBinary(operation.rpc.output, response.body)));
  }
  check(
    /^application\/(problem\+)?json\b/.test(type),
    `the response has the content type ${type || "(none)"} and the status ${response.status}`,
  );
  const json = JSON.parse(response.body.toString());
  // `meta` alone does not identify the envelope, because keys have a `meta`. No message has `data` or `error`.
  if ("data" in json || "error" in json) return readEnvelope(operation, response, json);
  return response.status === 200
    ? accepted(response, toComparable(operation.rpc.output, fromJson(operation.rpc.output, json)))
    : readConnectError(response, json);
}

function accepted({ status, headers }: RawResponse, response: Record<string, unknown>): Accepted {
  const requestId = headers["x-request-id"] ?? "";
  check(status === 200, `a success has the status ${status}`);
  check(requestIdForm.test(requestId), `the request id is ${requestId}`);
  return { ok: true, requestId, response };
}

// biome-ignore lint/suspicious/noExplicitAny: its shape is checked here.
function readEnvelope({ rpc, routes }: Operation, response: RawResponse, json: any): Outcome {
  const { meta, data, pagination, error, ...unknown } = json;
  const requestId = String(meta?.requestId);
  check(requestIdForm.test(requestId) && response.headers["x-request-id"] === requestId, "the request ids differ");
  check(Object.keys(unknown).length === 0, `the envelope has unknown members: ${Object.keys(unknown)}`);
  if (response.status === 200) {
    check(typeof data === "object" && data !== null && error === undefined, "a success without data");
    const name = routes[0]?.data;
    const page = rpc.output.fields.find(({ name }) => name === "pagination") && { pagination };
    return accepted(response, name === undefined ? data : { [name]: data, ...page });
  }
  const { detail, status, title, type, errors = [] } = error;
  const code = String(type).split("/errors-v2/service/")[1] ?? "";
  check(
    status === response.status && status === catalogue[codeOf(code)].status,
    `the statuses differ: ${response.status}`,
  );
  check(title === STATUS_CODES[status], `the title is ${title}`);
  check(typeof detail === "string" && detail !== "", "there is no detail");
  check(status !== 401 || /^Bearer/.test(response.headers["www-authenticate"] ?? ""), "401 without WWW-Authenticate");
  // biome-ignore lint/suspicious/noExplicitAny: as above.
  for (const each of errors as any[]) check(each.message !== "", "an error has no message");
  // biome-ignore lint/suspicious/noExplicitAny: as above.
  return { ok: false, requestId, code, locations: errors.map(({ location }: any) => String(location)) };
}

// biome-ignore lint/suspicious/noExplicitAny: its shape is checked here.
function readConnectError(response: RawResponse, { code, message, details = [] }: any): Refused {
  const info = findConnectDetail(details, ErrorInfoSchema);
  check(info !== undefined, `no ErrorInfo with ${code}: ${message}`);
  return toRefused(info, findConnectDetail(details, BadRequestSchema), undefined, response.headers["x-request-id"]);
}

function readGrpcWeb(operation: Operation, response: RawResponse): Outcome {
  const { body } = response;
  check(body.length >= 5, "a gRPC-Web response without a frame");
  const length = body.readUInt32BE(1);
  const trailers = body.subarray(body[0] === 0x80 ? 0 : 5 + length);
  const lines = trailers
    .subarray(5)
    .toString()
    .split("\r\n")
    .filter((line) => line !== "");
  const entries = lines.map((line) => [line.split(":")[0]?.toLowerCase(), line.slice(line.indexOf(":") + 1).trim()]);
  const headers = { ...response.headers, ...Object.fromEntries(entries) };
  return readGrpc(operation, {
    ...response,
    headers,
    body: body[0] === 0x80 ? Buffer.alloc(0) : body.subarray(0, 5 + length),
  });
}

function readGrpc({ rpc }: Operation, response: RawResponse): Outcome {
  const status = Number(response.headers["grpc-status"]);
  if (status === 0) {
    return accepted(response, toComparable(rpc.output, fromBinary(rpc.output, response.body.subarray(5))));
  }
  const details = response.headers["grpc-status-details-bin"];
  check(details !== undefined, `gRPC status ${status} without details: ${response.headers["grpc-message"]}`);
  const read = parseStatusDetails(details ?? "");
  check(read.code === status, `the statuses differ: ${status} and ${read.code}`);
  const info = findDetail(read, ErrorInfoSchema);
  check(info !== undefined, `no ErrorInfo in the details of ${read.message}`);
  return toRefused(info, findDetail(read, BadRequestSchema), status, response.headers["x-request-id"]);
}

function toRefused(
  info: MessageShape<typeof ErrorInfoSchema> | undefined,
  badRequest: MessageShape<typeof BadRequestSchema> | undefined,
  grpcStatus: number | undefined,
  requestId = "",
): Refused {
  const path = info?.metadata["type"] ?? "";
  const code = codeOf(path);
  check(
    info?.reason === reasonOf(code) && info.domain === "latchkey",
    `the ErrorInfo is ${info?.domain} ${info?.reason}`,
  );
  check(grpcStatus === undefined || grpcStatus === grpcStatusOf(code), `gRPC status ${grpcStatus} for ${path}`);
  check(requestIdForm.test(requestId), `the request id is ${requestId}`);
  check(requestId === info?.metadata["requestId"], "the request ids differ");
  const locations = badRequest?.fieldViolations.map(({ field }) => field) ?? [];
  return { ok: false, requestId, code: path, locations };
}

/** The HTTP status of an error. */
export function statusOf(path: string): number {
  return catalogue[codeOf(path)].status;
}

function codeOf(path: string): ApiErrorCode {
  const code = errorCodes.find((each) => pathOf(each) === path);
  if (code === undefined) throw new Error(`"${path}" is not in the catalogue`);
  return code;
}

function check(condition: boolean, message: string): void {
  if (!condition) throw new Error(message);
}
