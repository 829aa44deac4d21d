import { Agent } from "node:http";
import { ConnectError, type Transport } from "@connectrpc/connect";
import { createConnectTransport, createGrpcWebTransport } from "@connectrpc/connect-node";
import { expect } from "vitest";
import { BadRequestSchema, ErrorInfoSchema } from "../../../gen/google/rpc/error_details_pb.js";
import { operationOf } from "../operations.js";
import { toSuccess } from "./grpc.js";
import { headersOf } from "./headers.js";
import { toRequestMessage } from "./messages.js";
import { requestIdForm, toRefusal } from "./outcome.js";
import type { ProtocolClient, ProtocolName } from "./protocol-client.js";

/** The Connect protocol, with a real Connect client that sends JSON, as browsers do. */
export function openConnectClient(baseUrl: string): ProtocolClient {
  return openClient("connect", (nodeOptions) =>
    createConnectTransport({ baseUrl, httpVersion: "1.1", useBinaryFormat: false, nodeOptions }),
  );
}

/** The gRPC-Web protocol, with a real gRPC-Web client that sends binary messages. */
export function openGrpcWebClient(baseUrl: string): ProtocolClient {
  return openClient("grpc-web", (nodeOptions) => createGrpcWebTransport({ baseUrl, httpVersion: "1.1", nodeOptions }));
}

function openClient(name: ProtocolName, createTransport: (nodeOptions: { agent: Agent }) => Transport): ProtocolClient {
  // Its own connections, so that faults on a connection of one protocol do not affect the calls of another.
  const agent = new Agent({ keepAlive: true });
  const transport = createTransport({ agent });
  return {
    name,
    call: async (operation, credential, request, more) => {
      const { rpc, data } = operationOf(operation);
      const headers = new Headers(headersOf(credential, more));
      const message = toRequestMessage(rpc.input, request);
      try {
        const response = await transport.unary(rpc, undefined, undefined, headers, message);
        const requestId = response.header.get("x-request-id") ?? response.trailer.get("x-request-id");
        expect(requestId, "x-request-id").toMatch(requestIdForm);
        return toSuccess(rpc.output, response.message, data);
      } catch (error) {
        if (!(error instanceof ConnectError)) throw error;
        return readError(error);
      }
    },
    close: () => agent.destroy(),
  };
}

function readError(error: ConnectError) {
  return toRefusal({
    grpcCode: error.code,
    message: error.rawMessage,
    info: error.findDetails(ErrorInfoSchema)[0],
    badRequest: error.findDetails(BadRequestSchema)[0],
    requestId: distinct(error.metadata.get("x-request-id")),
  });
}

/** The request id. The client joins header and trailer, and both carry the id, so both must be equal. */
function distinct(joined: string | null): string {
  return [...new Set(joined?.split(", "))].join(", ");
}
