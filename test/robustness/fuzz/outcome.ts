import { STATUS_CODES } from "node:http";
import { brotliDecompressSync, gunzipSync } from "node:zlib";
import { type DescMessage, fromBinary, fromJson, type MessageShape } from "@bufbuild/protobuf";
import { anyUnpack } from "@bufbuild/protobuf/wkt";
import { BadRequestSchema, ErrorInfoSchema } from "../../../gen/google/rpc/error_details_pb.js";
import { type Status, StatusSchema } from "../../../gen/google/rpc/status_pb.js";
import { type ApiErrorCode, catalogue, errorCodes, grpcStatusOf, pathOf, reasonOf } from "../../../src/errors.js";
import { toComparable } from "../../contract/messages.js";
import type { Operation } from "./operations.js";
import type { Answer } from "./send.js";

/** How a request ended: with data, or with a failure of the catalogue. */
export type Outcome = Accepted | Refused;

export interface Accepted {
  readonly ok: true;
  readonly requestId: string;
  /** The response in the names of HTTP. */
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

/** Reads an answer, and throws if anything about it is not as documented. */
export function readOutcome(operation: Operation, answer: Answer): Outcome {
  const outcome = readByProtocol(operation, expanded(answer));
  if (outcome.ok) return outcome;
  const { code, locations } = outcome;
  check(code !== "application/invalid_input" || locations.length > 0, "invalid input, and nothing is named");
  check(
    locations.every((location) => location !== ""),
    "a mistake is located nowhere",
  );
  return outcome;
}

/** Connect answers what was compressed in the same way. */
function expanded(answer: Answer): Answer {
  const expand = { gzip: gunzipSync, br: brotliDecompressSync }[answer.headers["content-encoding"] ?? ""];
  return expand ? { ...answer, body: expand(answer.body) } : answer;
}

function readByProtocol(operation: Operation, answer: Answer): Outcome {
  const type = answer.headers["content-type"] ?? "";
  if (answer.headers["grpc-status"] !== undefined) return readGrpc(operation, answer);
  if (type.startsWith("application/grpc")) return readGrpcWeb(operation, answer);
  if (type.startsWith("application/proto")) {
    return accepted(answer, toComparable(operation.rpc.output, fromBinary(operation.rpc.output, answer.body)));
  }
  check(/^application\/json\b/.test(type), `the answer is of the type ${type || "(none)"}, status ${answer.status}`);
  const json = JSON.parse(answer.body.toString());
  // A key has a meta of its own; no message has data or an error.
  if ("data" in json || "error" in json) return readEnvelope(operation, answer, json);
  return answer.status === 200
    ? accepted(answer, toComparable(operation.rpc.output, fromJson(operation.rpc.output, json)))
    : readConnectError(answer, json);
}

function accepted(answer: Answer, response: Record<string, unknown>): Accepted {
  const requestId = answer.headers["x-request-id"] ?? "";
  check(answer.status === 200, `a success has the status ${answer.status}`);
  check(requestIdForm.test(requestId), `the request id is ${requestId}`);
  return { ok: true, requestId, response };
}

// biome-ignore lint/suspicious/noExplicitAny: it is what is being checked.
function readEnvelope({ rpc, routes }: Operation, answer: Answer, json: any): Outcome {
  const { meta, data, pagination, error, ...more } = json;
  const requestId = String(meta?.requestId);
  check(requestIdForm.test(requestId) && answer.headers["x-request-id"] === requestId, "the request ids differ");
  check(Object.keys(more).length === 0, `the envelope has ${Object.keys(more)}`);
  if (answer.status === 200) {
    check(typeof data === "object" && data !== null && error === undefined, "a success without data");
    const name = routes[0]?.data;
    const page = rpc.output.fields.find(({ name }) => name === "pagination") && { pagination };
    return accepted(answer, name === undefined ? data : { [name]: data, ...page });
  }
  const { detail, status, title, type, errors = [] } = error;
  const code = String(type).split("/errors-v2/service/")[1] ?? "";
  check(status === answer.status && status === catalogue[codeOf(code)].status, `the statuses differ: ${answer.status}`);
  check(title === STATUS_CODES[status], `the title is ${title}`);
  check(typeof detail === "string" && detail !== "", "there is no detail");
  check(status !== 401 || /^Bearer/.test(answer.headers["www-authenticate"] ?? ""), "401 without WWW-Authenticate");
  // biome-ignore lint/suspicious/noExplicitAny: as above.
  for (const each of errors as any[]) check(each.message !== "", "a mistake is not explained");
  // biome-ignore lint/suspicious/noExplicitAny: as above.
  return { ok: false, requestId, code, locations: errors.map(({ location }: any) => String(location)) };
}

// biome-ignore lint/suspicious/noExplicitAny: it is what is being checked.
function readConnectError(answer: Answer, { code, message, details = [] }: any): Refused {
  const detail = <Schema extends DescMessage>(schema: Schema) => {
    // biome-ignore lint/suspicious/noExplicitAny: as above.
    const found = details.find(({ type }: any) => type === schema.typeName);
    return found && (fromBinary(schema, Buffer.from(found.value, "base64")) as MessageShape<Schema>);
  };
  const info = detail(ErrorInfoSchema);
  check(info !== undefined, `no ErrorInfo beside ${code}: ${message}`);
  return toRefused(info, detail(BadRequestSchema), undefined, answer.headers["x-request-id"]);
}

function readGrpcWeb(operation: Operation, answer: Answer): Outcome {
  const { body } = answer;
  check(body.length >= 5, "a gRPC-Web answer without a frame");
  const length = body.readUInt32BE(1);
  const trailers = body.subarray(body[0] === 0x80 ? 0 : 5 + length);
  const lines = trailers
    .subarray(5)
    .toString()
    .split("\r\n")
    .filter((line) => line !== "");
  const told = lines.map((line) => [line.split(":")[0]?.toLowerCase(), line.slice(line.indexOf(":") + 1).trim()]);
  const headers = { ...answer.headers, ...Object.fromEntries(told) };
  return readGrpc(operation, {
    ...answer,
    headers,
    body: body[0] === 0x80 ? Buffer.alloc(0) : body.subarray(0, 5 + length),
  });
}

function readGrpc({ rpc }: Operation, answer: Answer): Outcome {
  const status = Number(answer.headers["grpc-status"]);
  if (status === 0) {
    return accepted(answer, toComparable(rpc.output, fromBinary(rpc.output, answer.body.subarray(5))));
  }
  const details = answer.headers["grpc-status-details-bin"];
  check(details !== undefined, `gRPC status ${status} without details: ${answer.headers["grpc-message"]}`);
  const read = fromBinary(StatusSchema, Buffer.from(details ?? "", "base64"));
  check(read.code === status, `the statuses differ: ${status} and ${read.code}`);
  const info = detailOf(read, ErrorInfoSchema);
  check(info !== undefined, `no ErrorInfo in the details of ${read.message}`);
  return toRefused(info, detailOf(read, BadRequestSchema), status, answer.headers["x-request-id"]);
}

function detailOf<Schema extends DescMessage>(status: Status, schema: Schema) {
  return status.details.map((any) => anyUnpack(any, schema)).find((message) => message !== undefined);
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

/** The HTTP status of a failure. */
export function statusOf(path: string): number {
  return catalogue[codeOf(path)].status;
}

function codeOf(path: string): ApiErrorCode {
  const code = errorCodes.find((each) => pathOf(each) === path);
  if (code === undefined) throw new Error(`"${path}" is not in the catalogue`);
  return code;
}

function check(holds: boolean, otherwise: string): void {
  if (!holds) throw new Error(otherwise);
}
