import { type DescMessage, fromBinary, type Message, toBinary } from "@bufbuild/protobuf";
import type { ServiceError } from "@grpc/grpc-js";
import { expect } from "vitest";
import { BadRequestSchema, ErrorInfoSchema } from "../../../gen/google/rpc/error_details_pb.js";
import { type OperationName, operationOf, pathOf } from "../operations.js";
import { callUnary, openGrpcJs } from "./grpc-js.js";
import { type CallerCredential, type HeaderLines, headersOf } from "./headers.js";
import { toComparable, toRequestMessage } from "./messages.js";
import { type Outcome, requestIdForm, type Success, toRefusal } from "./outcome.js";
import type { ProtocolClient } from "./protocol-client.js";
import { findDetail, readStatusDetails } from "./status-details.js";

/** A gRPC client that can also send bytes that are not a message. */
export interface GrpcClient extends ProtocolClient {
  callBytes(operation: OperationName, credential: CallerCredential, bytes: Uint8Array): Promise<Outcome>;
}

/** The gRPC protocol, with a real @grpc/grpc-js client. */
export function openGrpcClient(address: string): GrpcClient {
  const client = openGrpcJs(address);

  async function callBytes(
    operation: OperationName,
    credential: CallerCredential,
    bytes: Uint8Array,
    headers?: HeaderLines,
  ) {
    const { rpc, data } = operationOf(operation);
    const response = await callUnary(client, pathOf(rpc), headersOf(credential, headers), bytes);
    if (response.error !== undefined) return readError(response.error);
    expect(response.trailers.get("x-request-id")).toEqual([expect.stringMatching(requestIdForm)]);
    return toSuccess(rpc.output, fromBinary(rpc.output, response.bytes), data);
  }

  return {
    name: "grpc",
    call: async (operation, credential, request, headers) => {
      const { input } = operationOf(operation).rpc;
      return callBytes(operation, credential, toBinary(input, toRequestMessage(input, request)), headers);
    },
    callBytes,
    close: () => client.close(),
  };
}

/** Converts a response message to the outcome that HTTP would have: the data and, for lists, the pagination. */
export function toSuccess(schema: DescMessage, message: Message, dataName: string | undefined): Success {
  const json = toComparable(schema, message);
  if (dataName === undefined) return { ok: true, data: json };
  const { [dataName]: data, ...beside } = json;
  return { ok: true, data, ...beside };
}

function readError(error: ServiceError): Outcome {
  const status = readStatusDetails(error.metadata);
  expect(status, `status details: ${error.message}`).toBeDefined();
  expect({ code: status?.code, message: status?.message }).toEqual({ code: error.code, message: error.details });
  return toRefusal({
    grpcCode: error.code,
    message: error.details,
    info: findDetail(status, ErrorInfoSchema),
    badRequest: findDetail(status, BadRequestSchema),
    requestId: error.metadata.get("x-request-id").map(String).join(),
  });
}
