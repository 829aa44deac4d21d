import { toBinary } from "@bufbuild/protobuf";
import { type Duration, durationMs } from "@bufbuild/protobuf/wkt";
import { ConnectError } from "@connectrpc/connect";
import { createConnectTransport, createGrpcWebTransport } from "@connectrpc/connect-node";
import { ErrorInfoSchema, RetryInfoSchema } from "../../../gen/google/rpc/error_details_pb.js";
import type { TestApp } from "../harness.js";
import { type OperationName, operationOf, pathOf } from "../operations.js";
import { callUnaryOnce, type GrpcJsResponse } from "./grpc-js.js";
import { headersOf } from "./headers.js";
import { post } from "./http-requests.js";
import { toRequestMessage } from "./messages.js";
import type { ProtocolName } from "./protocol-client.js";
import { findDetail, readStatusDetails } from "./status-details.js";

/** The result code and the rate-limit headers of a call, independent of the protocol. */
export interface CallResult {
  /** `ok`, or `<category>/<code>`. */
  readonly code: string;
  /** Headers over HTTP, trailing metadata over gRPC. */
  readonly policy: string | undefined;
  readonly limit: string | undefined;
  readonly retryAfter: string | undefined;
  /** From the google.rpc.RetryInfo, if the protocol has one. */
  readonly retryDelayMs: number | undefined;
}

/** Calls an operation, by default with an empty request. */
export type Caller = (app: TestApp, key: string, operation?: OperationName, request?: object) => Promise<CallResult>;

/** A caller for each protocol, with a real client. */
export const callers: Record<ProtocolName, Caller> = {
  http: async (app, key, operation = "listKeys", request = {}) => {
    const [, path] = operationOf(operation).routes[0];
    const { status, headers, text } = await post(app.httpUrl, path, key, request);
    const code = status === 200 ? "ok" : JSON.parse(text).error.type.split("/").slice(-2).join("/");
    return resultOf(code, (name) => headers[name]?.toString());
  },
  grpc: async (app, key, operation = "listKeys", request = {}) => {
    const { rpc } = operationOf(operation);
    const message = toBinary(rpc.input, toRequestMessage(rpc.input, { ...request }));
    return grpcResult(await callUnaryOnce(app.grpcAddress, pathOf(rpc), headersOf(key), message));
  },
  connect: byTransport((baseUrl) => createConnectTransport({ baseUrl, httpVersion: "1.1", useBinaryFormat: false })),
  "grpc-web": byTransport((baseUrl) => createGrpcWebTransport({ baseUrl, httpVersion: "1.1" })),
};

/** The protocols by name. */
export const protocolNames = Object.keys(callers) as ProtocolName[];

function grpcResult({ error, trailers }: GrpcJsResponse): CallResult {
  const header = (name: string) => trailers.get(name)[0]?.toString();
  const details = readStatusDetails(trailers);
  if (error === undefined || details === undefined) return resultOf("ok", header);
  const type = findDetail(details, ErrorInfoSchema)?.metadata["type"];
  return resultOf(type ?? "", header, findDetail(details, RetryInfoSchema)?.retryDelay);
}

function byTransport(createTransport: (baseUrl: string) => ReturnType<typeof createConnectTransport>): Caller {
  return async (app, key, operation = "listKeys", request = {}) => {
    const { rpc } = operationOf(operation);
    const message = toRequestMessage(rpc.input, { ...request });
    try {
      const { header } = await createTransport(app.httpUrl).unary(rpc, undefined, undefined, headersOf(key), message);
      return resultOf("ok", (name) => header.get(name) ?? undefined);
    } catch (error) {
      if (!(error instanceof ConnectError)) throw error;
      const type = error.findDetails(ErrorInfoSchema)[0]?.metadata["type"];
      const retry = error.findDetails(RetryInfoSchema)[0];
      return resultOf(type ?? "", (name) => error.metadata.get(name) ?? undefined, retry?.retryDelay);
    }
  };
}

function resultOf(code: string, header: (name: string) => string | undefined, retryDelay?: Duration): CallResult {
  return {
    code,
    policy: header("ratelimit-policy"),
    limit: header("ratelimit"),
    retryAfter: header("retry-after"),
    retryDelayMs: retryDelay && durationMs(retryDelay),
  };
}
