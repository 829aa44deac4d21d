import { once } from "node:events";
import { Agent, type IncomingMessage, request as send } from "node:http";
import { Code, ConnectError, type Transport } from "@connectrpc/connect";
import { createConnectTransport, createGrpcTransport, Http2SessionManager } from "@connectrpc/connect-node";
import { toRequestMessage } from "../../support/clients/messages.js";
import { type OperationName, operationOf } from "../../support/operations.js";

/** The result of a call: the fields of the response, or the name of a gRPC status, also for the other protocols. */
export type Answer =
  | { readonly fields: Record<string, unknown> }
  | { readonly failed: string; readonly detail?: string | undefined };

/** A client for one protocol. */
export interface ProtocolClient {
  readonly name: "http" | "grpc" | "connect";
  call(operation: OperationName, credential: string, request: object, signal?: AbortSignal): Promise<Answer>;
  close(): void;
}

export function openHttp(baseUrl: string): ProtocolClient {
  const agent = new Agent({ keepAlive: true });
  return {
    name: "http",
    async call(operation, credential, request, signal) {
      // The last route of an operation accepts POST.
      const [, path] = operationOf(operation).routes.at(-1) ?? ["", ""];
      const body = Buffer.from(JSON.stringify(request));
      const headers = {
        authorization: `Bearer ${credential}`,
        "content-type": "application/json",
        "content-length": body.length,
      };
      try {
        const sent = send(`${baseUrl}${path}`, { method: "POST", agent, headers, ...(signal && { signal }) });
        sent.end(body);
        const [response] = (await once(sent, "response")) as [IncomingMessage];
        const { data, error } = JSON.parse(Buffer.concat(await response.toArray()).toString()) as Envelope;
        const status = response.statusCode ?? 0;
        if (status === 200) return { fields: data ?? {} };
        return { failed: byStatus[status] ?? `HTTP ${status}`, detail: error?.detail };
      } catch (error) {
        return { failed: signal?.aborted ? "Canceled" : `${error}` };
      }
    },
    close: () => agent.destroy(),
  };
}

interface Envelope {
  readonly data?: Record<string, unknown>;
  readonly error?: { readonly detail: string };
}

/** The gRPC status for each HTTP status that the load can get. */
const byStatus: Readonly<Record<number, string>> = {
  400: "InvalidArgument",
  401: "Unauthenticated",
  403: "PermissionDenied",
  404: "NotFound",
  503: "Unavailable",
  504: "DeadlineExceeded",
};

export function openGrpc(baseUrl: string): ProtocolClient {
  const sessionManager = new Http2SessionManager(baseUrl);
  const transport = createGrpcTransport({ baseUrl, sessionManager });
  return overTransport("grpc", transport, () => sessionManager.abort());
}

export function openConnect(baseUrl: string): ProtocolClient {
  const agent = new Agent({ keepAlive: true });
  const transport = createConnectTransport({ baseUrl, httpVersion: "1.1", nodeOptions: { agent } });
  return overTransport("connect", transport, () => agent.destroy());
}

function overTransport(name: ProtocolClient["name"], transport: Transport, close: () => void): ProtocolClient {
  return {
    name,
    async call(operation, credential, request, signal) {
      const { rpc } = operationOf(operation);
      const message = toRequestMessage(rpc.input, request as Record<string, unknown>);
      const headers = { authorization: `Bearer ${credential}` };
      try {
        const response = await transport.unary(rpc, signal, undefined, headers, message);
        return { fields: response.message as unknown as Record<string, unknown> };
      } catch (error) {
        const { code, rawMessage } = ConnectError.from(error);
        return { failed: Code[code] ?? `${error}`, detail: rawMessage };
      }
    },
    close,
  };
}
