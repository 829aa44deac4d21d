import { Agent as HttpAgent, type IncomingMessage, request as requestHttp } from "node:http";
import { Agent as HttpsAgent, request as requestHttps } from "node:https";
import { setTimeout as sleep } from "node:timers/promises";
import { fromBinary, toBinary } from "@bufbuild/protobuf";
import { ConnectError, type Transport } from "@connectrpc/connect";
import { createConnectTransport, createGrpcTransport, Http2SessionManager } from "@connectrpc/connect-node";
import type { ServiceError } from "@grpc/grpc-js";
import { ErrorInfoSchema } from "../../../gen/google/rpc/error_details_pb.js";
import { type OperationName, operationOf, pathOf } from "../operations.js";
import { callUnary, openGrpcJs } from "./grpc-js.js";
import { toBody, toComparable, toRequestMessage } from "./messages.js";
import { findDetail, readStatusDetails } from "./status-details.js";

/** The outcome of a call, as far as the client can know it. */
export type Outcome =
  | { readonly kind: "success"; readonly data: Fields }
  /** The response was an error of the catalogue. */
  | { readonly kind: "refused"; readonly code: string; readonly detail: string }
  /** The client has cancelled the call by its signal. */
  | { readonly kind: "cancelled" }
  /** There was no connection, so the call was not sent. */
  | { readonly kind: "unsent" }
  /** Sent, but the server reported that it did not process the call (REFUSED_STREAM). A retry is safe. */
  | { readonly kind: "unprocessed" }
  /** Sent, but there was no response. The call may or may not have taken effect. */
  | { readonly kind: "disconnected"; readonly why: string };

export type Fields = Readonly<Record<string, unknown>>;

/**
 * A client that checks nothing, and never throws: for services that are overloaded, stopped or killed meanwhile. All of
 * its outcomes have the same form for all protocols.
 */
export interface UncheckedClient {
  readonly name: UncheckedClientKind;
  call(operation: OperationName, credential: string, request: Fields, options?: CallOptions): Promise<Outcome>;
  close(): void;
}

export interface CallOptions {
  /** Makes the call safe to retry. */
  readonly idempotencyKey?: string;
  /** Cancels the call. grpc-js ignores it. */
  readonly signal?: AbortSignal;
}

/** The addresses of a service, and the CA of its certificate if it uses TLS. */
export interface Target {
  readonly httpUrl: string;
  readonly grpcAddress: string;
  readonly ca?: string;
}

export interface ClientOptions {
  /** How long a call may take. Connect and gRPC clients also send it as the deadline. */
  readonly timeoutMs?: number;
  /** The maximum of connections of an HTTP or Connect client. */
  readonly maxConnections?: number;
}

/** Every kind of client. Each client has its own connections, and keeps them open. */
const openers = {
  HTTP: openHttp,
  Connect: openConnect,
  "gRPC by grpc-js": openGrpcByGrpcJs,
  "gRPC by connect-node": openGrpcByConnectNode,
} as const satisfies Record<string, (target: Target, options: ClientOptions) => Omit<UncheckedClient, "name">>;

export type UncheckedClientKind = keyof typeof openers;

export const uncheckedClientKinds = Object.keys(openers) as UncheckedClientKind[];

export function openUnchecked(kind: UncheckedClientKind, target: Target, options: ClientOptions = {}): UncheckedClient {
  return { name: kind, ...openers[kind](target, options) };
}

/** Retries while the service is unavailable: right after its start, it may not be able to verify keys yet. */
export async function callUntilAvailable(
  client: UncheckedClient,
  ...args: Parameters<UncheckedClient["call"]>
): Promise<Outcome> {
  for (let attempt = 1; ; attempt++) {
    const outcome = await client.call(...args);
    if (outcome.kind !== "refused" || outcome.code !== "service_unavailable" || attempt === 50) return outcome;
    await sleep(100);
  }
}

function openHttp({ httpUrl, ca }: Target, { timeoutMs, maxConnections }: ClientOptions) {
  const agent = agentOf(ca, maxConnections);
  const request = ca ? requestHttps : requestHttp;
  return {
    async call(operation: OperationName, credential: string, body: Fields, options: CallOptions = {}) {
      // Lists also accept POST; that route is the last.
      const { routes } = operationOf(operation);
      const [, path, bodyField] = routes.at(-1) ?? routes[0];
      const json = Buffer.from(JSON.stringify(toBody(body, bodyField)));
      const headers = {
        ...headersOf(credential, options),
        "content-type": "application/json",
        "content-length": json.length,
      };
      try {
        const sent = request(`${httpUrl}${path}`, {
          agent,
          method: "POST",
          headers,
          ...(timeoutMs && { timeout: timeoutMs }),
          ...(options.signal && { signal: options.signal }),
        });
        sent.once("timeout", () => sent.destroy(new Error("no response before the timeout")));
        const response = await new Promise<IncomingMessage>((resolve, reject) => {
          sent.once("response", resolve).once("error", reject).end(json);
        });
        return readEnvelope(Buffer.concat(await response.toArray()).toString());
      } catch (error) {
        return outcomeOf(error, options);
      }
    },
    close: () => agent.destroy(),
  };
}

function openConnect({ httpUrl, ca }: Target, { timeoutMs, maxConnections }: ClientOptions) {
  const agent = agentOf(ca, maxConnections);
  const transport = createConnectTransport({
    baseUrl: httpUrl,
    httpVersion: "1.1",
    nodeOptions: { agent },
    ...(timeoutMs && { defaultTimeoutMs: timeoutMs }),
  });
  return { ...overTransport(transport), close: () => agent.destroy() };
}

function openGrpcByConnectNode({ grpcAddress, ca }: Target, { timeoutMs }: ClientOptions) {
  const baseUrl = `${ca ? "https" : "http"}://${grpcAddress}`;
  const sessionManager = new Http2SessionManager(baseUrl, {}, ca ? { ca } : {});
  ignoreSessionErrors(sessionManager);
  const timeout = timeoutMs && { defaultTimeoutMs: timeoutMs };
  const transport = createGrpcTransport({ baseUrl, sessionManager, ...timeout });
  return { ...overTransport(transport), close: () => sessionManager.abort() };
}

function openGrpcByGrpcJs({ grpcAddress, ca }: Target, { timeoutMs }: ClientOptions) {
  // Retries would hide the errors that the tests look for. By default, the clients of one process share a connection.
  const client = openGrpcJs(grpcAddress, ca === undefined ? undefined : { ca }, {
    "grpc.enable_retries": 0,
    "grpc.use_local_subchannel_pool": 1,
  });
  return {
    async call(operation: OperationName, credential: string, request: Fields, options: CallOptions = {}) {
      const { rpc } = operationOf(operation);
      const message = toBinary(rpc.input, toRequestMessage(rpc.input, request));
      const headers = Object.entries(headersOf(credential, options));
      const deadline = timeoutMs === undefined ? {} : { deadline: Date.now() + timeoutMs };
      const { bytes, error } = await callUnary(client, pathOf(rpc), headers, message, deadline);
      if (error) return outcomeOfStatus(error);
      return { kind: "success" as const, data: toComparable(rpc.output, fromBinary(rpc.output, bytes)) };
    },
    close: () => client.close(),
  };
}

/** connect-node 2.1.2 drops its listeners of a session that later emits an error. That would end the test run. */
function ignoreSessionErrors(sessions: Http2SessionManager): void {
  const request = sessions.request.bind(sessions);
  const handled = new WeakSet<object>();
  sessions.request = async (...args) => {
    const stream = await request(...args);
    if (stream.session && !handled.has(stream.session)) handled.add(stream.session.on("error", () => {}));
    return stream;
  };
}

function agentOf(ca: string | undefined, maxSockets = Infinity): HttpAgent {
  const options = { keepAlive: true, maxSockets };
  return ca ? new HttpsAgent({ ...options, ca }) : new HttpAgent(options);
}

function headersOf(credential: string, { idempotencyKey }: CallOptions): Record<string, string> {
  const authorization = `Bearer ${credential}`;
  return idempotencyKey === undefined ? { authorization } : { authorization, "idempotency-key": idempotencyKey };
}

function overTransport(transport: Transport): Pick<UncheckedClient, "call"> {
  return {
    async call(operation, credential, request, options = {}) {
      const { rpc } = operationOf(operation);
      const headers = headersOf(credential, options);
      try {
        const message = toRequestMessage(rpc.input, request);
        const response = await transport.unary(rpc, options.signal, undefined, headers, message);
        return { kind: "success", data: toComparable(rpc.output, response.message) };
      } catch (error) {
        return outcomeOf(error, options);
      }
    },
  };
}

/** A body without the envelope does not come from the service. */
function readEnvelope(text: string): Outcome {
  const { data, error, meta } = JSON.parse(text) as {
    data?: Fields;
    error?: { type: string; detail: string };
    meta?: Fields;
  };
  if (meta === undefined) return { kind: "disconnected", why: `unexpected response: ${text}` };
  if (error === undefined) return { kind: "success", data: data ?? {} };
  return { kind: "refused", code: lastSegment(error.type), detail: error.detail };
}

function lastSegment(path: string): string {
  return path.slice(path.lastIndexOf("/") + 1);
}

/** An error of Node's or Connect's client. */
function outcomeOf(error: unknown, { signal }: CallOptions): Outcome {
  if (error instanceof ConnectError) {
    const info = error.findDetails(ErrorInfoSchema)[0];
    if (info) return { kind: "refused", code: info.reason.toLowerCase(), detail: error.rawMessage };
  }
  if (signal?.aborted) return { kind: "cancelled" };
  const { message, cause } = error as Error;
  const { code: innermost, syscall } = (cause ?? error) as NodeJS.ErrnoException;
  if (innermost === "ECONNREFUSED" || syscall === "connect") return { kind: "unsent" };
  if (/REFUSED_STREAM/.test(message)) return { kind: "unprocessed" };
  return { kind: "disconnected", why: `${message} (${innermost})` };
}

/** An error of grpc-js's client. */
function outcomeOfStatus(error: ServiceError): Outcome {
  const details = readStatusDetails(error.metadata);
  if (details) {
    const code = findDetail(details, ErrorInfoSchema)?.reason.toLowerCase() ?? "no reason";
    return { kind: "refused", code, detail: error.details };
  }
  // The message of grpc-js if it has no connection.
  if (/^No connection established/.test(error.details)) return { kind: "unsent" };
  if (/REFUSED_STREAM|Stream refused/.test(error.details)) return { kind: "unprocessed" };
  return { kind: "disconnected", why: error.message };
}
