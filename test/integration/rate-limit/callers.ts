import { fromBinary, toBinary } from "@bufbuild/protobuf";
import { anyUnpack, type Duration, durationMs } from "@bufbuild/protobuf/wkt";
import { ConnectError } from "@connectrpc/connect";
import { createConnectTransport, createGrpcWebTransport } from "@connectrpc/connect-node";
import { Client, credentials, Metadata, type ServiceError } from "@grpc/grpc-js";
import { ErrorInfoSchema, RetryInfoSchema } from "../../../gen/google/rpc/error_details_pb.js";
import { StatusSchema } from "../../../gen/google/rpc/status_pb.js";
import { toRequestMessage } from "../../contract/messages.js";
import { type OperationName, operationOf } from "../../contract/operations.js";
import { post } from "../../support/clients/http-requests.js";
import type { ProtocolName } from "../../support/clients/protocol-client.js";
import type { TestApp } from "../../support/harness.js";

/** What a caller is told beside the answer, whichever protocol it is. */
export interface Told {
  /** `ok`, or `<category>/<code>`. */
  readonly code: string;
  /** Headers over HTTP, trailing metadata over gRPC. */
  readonly policy: string | undefined;
  readonly limit: string | undefined;
  readonly retryAfter: string | undefined;
  /** By the google.rpc.RetryInfo, where the protocol has one. */
  readonly retryDelayMs: number | undefined;
}

/** Calls an operation, which without a request gets an empty one, and tells what came beside the answer. */
export type Caller = (app: TestApp, key: string, operation?: OperationName, request?: object) => Promise<Told>;

/** A caller for each protocol, with a real client. */
export const callers: Record<ProtocolName, Caller> = {
  http: async (app, key, operation = "listKeys", request = {}) => {
    const [, path] = operationOf(operation).routes[0];
    const { status, headers, text } = await post(app.httpUrl, path, key, request);
    const code = status === 200 ? "ok" : JSON.parse(text).error.type.split("/").slice(-2).join("/");
    return told(code, (name) => headers[name]?.toString());
  },
  grpc: (app, key, operation = "listKeys", request = {}) => {
    const { rpc } = operationOf(operation);
    const client = new Client(app.grpcAddress, credentials.createInsecure());
    const metadata = new Metadata();
    metadata.set("authorization", `Bearer ${key}`);
    const bytes = Buffer.from(toBinary(rpc.input, toRequestMessage(rpc.input, { ...request })));
    const asIs = (message: Buffer) => message;
    const path = `/${rpc.parent.typeName}/${rpc.name}`;
    return new Promise<Told>((resolve) => {
      let failure: ServiceError | null = null;
      const call = client.makeUnaryRequest(path, asIs, asIs, bytes, metadata, (error) => {
        failure = error;
      });
      call.on("status", ({ metadata: trailers }) => resolve(toldByGrpc(failure, trailers)));
    }).finally(() => client.close());
  },
  connect: byTransport((baseUrl) => createConnectTransport({ baseUrl, httpVersion: "1.1", useBinaryFormat: false })),
  "grpc-web": byTransport((baseUrl) => createGrpcWebTransport({ baseUrl, httpVersion: "1.1" })),
};

/** The protocols by name. */
export const protocolNames = Object.keys(callers) as ProtocolName[];

function toldByGrpc(failure: ServiceError | null, trailers: Metadata): Told {
  const header = (name: string) => trailers.get(name)[0]?.toString();
  const [bytes] = trailers.get("grpc-status-details-bin");
  if (failure === null || bytes === undefined) return told("ok", header);
  const { details } = fromBinary(StatusSchema, bytes as Buffer);
  const type = details.map((any) => anyUnpack(any, ErrorInfoSchema)).find(Boolean)?.metadata["type"];
  const retry = details.map((any) => anyUnpack(any, RetryInfoSchema)).find(Boolean);
  return told(type ?? "", header, retry?.retryDelay);
}

function byTransport(createTransport: (baseUrl: string) => ReturnType<typeof createConnectTransport>): Caller {
  return async (app, key, operation = "listKeys", request = {}) => {
    const { rpc } = operationOf(operation);
    const headers = { authorization: `Bearer ${key}` };
    const message = toRequestMessage(rpc.input, { ...request });
    try {
      const { header } = await createTransport(app.httpUrl).unary(rpc, undefined, undefined, headers, message);
      return told("ok", (name) => header.get(name) ?? undefined);
    } catch (error) {
      if (!(error instanceof ConnectError)) throw error;
      const type = error.findDetails(ErrorInfoSchema)[0]?.metadata["type"];
      const retry = error.findDetails(RetryInfoSchema)[0];
      return told(type ?? "", (name) => error.metadata.get(name) ?? undefined, retry?.retryDelay);
    }
  };
}

function told(code: string, header: (name: string) => string | undefined, retryDelay?: Duration): Told {
  return {
    code,
    policy: header("ratelimit-policy"),
    limit: header("ratelimit"),
    retryAfter: header("retry-after"),
    retryDelayMs: retryDelay && durationMs(retryDelay),
  };
}
