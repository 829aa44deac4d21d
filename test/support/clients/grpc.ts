import { type DescMessage, fromBinary, type Message, toBinary } from "@bufbuild/protobuf";
import { anyUnpack } from "@bufbuild/protobuf/wkt";
import { Client, credentials, Metadata, type ServiceError } from "@grpc/grpc-js";
import { expect } from "vitest";
import { BadRequestSchema, ErrorInfoSchema } from "../../../gen/google/rpc/error_details_pb.js";
import { type Status, StatusSchema } from "../../../gen/google/rpc/status_pb.js";
import { type OperationName, operationOf } from "../operations.js";
import { toComparable, toRequestMessage } from "./messages.js";
import { type Outcome, requestIdForm, type Success, toRefusal } from "./outcome.js";
import { type CallerCredential, type HeaderLines, headersOf, type ProtocolClient } from "./protocol-client.js";

/** A gRPC client that can also send bytes that are not a message. */
export interface GrpcClient extends ProtocolClient {
  callBytes(operation: OperationName, credential: CallerCredential, bytes: Uint8Array): Promise<Outcome>;
}

/** The gRPC protocol, with a real @grpc/grpc-js client. */
export function openGrpcClient(address: string): GrpcClient {
  const client = new Client(address, credentials.createInsecure());

  async function callBytes(
    operation: OperationName,
    credential: CallerCredential,
    bytes: Uint8Array,
    headers?: HeaderLines,
  ) {
    const { rpc, data } = operationOf(operation);
    const response = await send(client, `/${rpc.parent.typeName}/${rpc.name}`, headersOf(credential, headers), bytes);
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

interface GrpcAnswer {
  readonly bytes: Uint8Array;
  readonly trailers: Metadata;
  readonly error: ServiceError | undefined;
}

function send(client: Client, path: string, headers: HeaderLines, bytes: Uint8Array): Promise<GrpcAnswer> {
  const metadata = new Metadata();
  for (const [name, value] of headers) metadata.add(name, value);
  return new Promise((resolve) => {
    let answered: { bytes: Uint8Array; error: ServiceError | undefined };
    const call = client.makeUnaryRequest<Uint8Array, Uint8Array>(
      path,
      (request) => Buffer.from(request),
      (response) => response,
      bytes,
      metadata,
      (error, response) => {
        answered = { bytes: response ?? new Uint8Array(), error: error ?? undefined };
      },
    );
    // The status event follows the callback, and has the trailers.
    call.on("status", ({ metadata: trailers }) => resolve({ ...answered, trailers }));
  });
}

function readError(error: ServiceError): Outcome {
  const [bytes] = error.metadata.get("grpc-status-details-bin");
  expect(bytes, `status details: ${error.message}`).toBeInstanceOf(Buffer);
  const status = fromBinary(StatusSchema, bytes as Buffer);
  expect({ code: status.code, message: status.message }).toEqual({ code: error.code, message: error.details });
  return toRefusal({
    grpcCode: error.code,
    message: error.details,
    info: detail(status, ErrorInfoSchema),
    badRequest: detail(status, BadRequestSchema),
    requestId: error.metadata.get("x-request-id").map(String).join(),
  });
}

function detail<Schema extends DescMessage>(status: Status, schema: Schema) {
  return status.details.map((any) => anyUnpack(any, schema)).find((message) => message !== undefined);
}
