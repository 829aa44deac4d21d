import type { IncomingMessage } from "node:http";
import type { Message } from "@bufbuild/protobuf";
import { createConnectRouter, createContextKey, createContextValues, type HandlerContext } from "@connectrpc/connect";
import type { UniversalHandler, UniversalServerRequest } from "@connectrpc/connect/protocol";
import { codeToHttpStatus, errorToJsonBytes } from "@connectrpc/connect/protocol-connect";
import { setTrailerStatus } from "@connectrpc/connect/protocol-grpc";
import type { FastifyInstance, FastifyReply, FastifyRequest } from "fastify";
import { chain } from "../../call/maybe-promise.js";
import { type ApiError, unsupportedMediaType } from "../../errors.js";
import { maxMessageBytes, type Procedure, toApiError } from "../../rpc/pipeline.js";
import { toConnectError } from "../../rpc/status.js";
import { timeoutMs, validateTimeout } from "../../rpc/timeout.js";
import {
  admitCall,
  type HttpCall,
  noStoreHeaders,
  performCall,
  type SendBody,
  tenantOf,
  toHttpError,
} from "../call.js";
import { readBody } from "../request-body.js";
import { type BodyFormat, refuseCompressed, refuseUndecodable } from "./body.js";

const callKey = createContextKey<HttpCall | undefined>(undefined);

/**
 * The Connect and gRPC-Web protocols, in a Fastify scope of their own on the HTTP port.
 *
 * @param headersOf the headers of any error response over HTTP
 */
export function connectPlugin(procedures: readonly Procedure[], headersOf: HeadersOf, send: SendBody) {
  const byPath = new Map(procedures.map((procedure) => [procedure.path, procedure]));
  const { handlers } = createRouter(procedures);

  return async (scope: FastifyInstance): Promise<void> => {
    scope.setErrorHandler(createErrorHandler(headersOf, send));
    // Synchronous if the caller is known at once: while a promise is pending, the body arrives without a tenant.
    scope.addHook("onRequest", (request, _reply, done) => {
      const procedure = byPath.get(request.routeOptions.url ?? "");
      if (procedure === undefined) return done();
      const { call } = request;
      call.protocol = "connect";
      // The timeout counts from the first byte, and includes the time in which the body arrives.
      const [timeoutProtocol, timeout] = timeoutOf(request);
      call.deadline = Math.min(call.deadline, call.startedAt + timeoutMs(timeoutProtocol, timeout));
      const admitted = chain(admitCall(request, procedure), () => {
        const format = formatOf(request);
        if (format === undefined) {
          throw unsupportedMediaType(
            "Call an RPC with a body of type application/json, application/proto or gRPC-Web.",
          );
        }
        refuseCompressed(format, request.headers);
      });
      if (admitted instanceof Promise) admitted.then(() => done(), done);
      else done();
    });
    scope.removeAllContentTypeParsers();
    scope.addContentTypeParser("*", ({ raw, call }: FastifyRequest, _payload, done) =>
      readBody(raw, tenantOf(call), done),
    );
    for (const handler of handlers) {
      scope.post(handler.requestPath, async (request, reply) => {
        refuseBadBody(request);
        await respond(handler, request, reply, send);
        return reply;
      });
    }
  };
}

/** Connect's own handlers. They neither read nor write compressed messages, of which a few bytes expand to many. */
function createRouter(procedures: readonly Procedure[]) {
  const router = createConnectRouter({
    grpc: false,
    acceptCompression: [],
    readMaxBytes: maxMessageBytes,
    jsonOptions: { ignoreUnknownFields: false },
  });
  for (const { method } of procedures) router.rpc(method, handle);
  return router;
}

/**
 * Runs a Connect handler, and sends its response like any other on this port. Written by hand: Connect's Fastify plugin
 * bypasses Fastify when it writes a response, so that neither its size before it is written nor its outcome is known.
 */
async function respond(handler: UniversalHandler, request: FastifyRequest, reply: FastifyReply, send: SendBody) {
  const { status, header, body } = await handler(toUniversal(request));
  const chunks: Uint8Array[] = [];
  for await (const chunk of body ?? []) chunks.push(chunk);
  reply.code(status).headers(noStoreHeaders);
  for (const [name, value] of header ?? []) reply.header(name, value);
  send(request, reply, Buffer.concat(chunks));
}

function toUniversal({ call, raw, body }: FastifyRequest): UniversalServerRequest {
  const header = new Headers();
  for (const [name, value] of Object.entries(raw.headers)) if (value !== undefined) header.set(name, String(value));
  return {
    httpVersion: raw.httpVersion,
    method: raw.method ?? "",
    url: `http://localhost${call.procedure?.path}`,
    header,
    body: singleChunk(body as Buffer),
    signal: new AbortController().signal, // the pipeline detects when the client disconnects
    contextValues: createContextValues().set(callKey, call),
  };
}

function refuseBadBody(request: FastifyRequest): void {
  const format = formatOf(request);
  const schema = request.call.procedure?.method.input;
  if (format === undefined || schema === undefined) throw new Error("a body was read before the call was admitted");
  validateTimeout(...timeoutOf(request));
  refuseUndecodable(schema, format, request.body as Buffer);
}

/** Connect expects a stream of bytes. */
async function* singleChunk(body: Buffer): AsyncGenerator<Buffer> {
  yield body;
}

/** Passes a message that Connect has decoded to the pipeline. */
async function handle(message: Message, context: HandlerContext): Promise<Message> {
  const call = context.values.get(callKey);
  if (call === undefined) throw new Error("a Connect call has no HTTP call in its context");
  try {
    return await performCall(call, () => message);
  } catch (error) {
    call.error = toApiError(error);
    throw toConnectError(call.error, call.requestId);
  }
}

type HeadersOf = (error: ApiError) => Readonly<Record<string, string>>;

/**
 * Creates the error handler for calls that are refused before they reach Connect. It responds in the protocol of the
 * request. If the request uses none of the RPC protocols, it rethrows, and the outer scope responds as to any HTTP
 * client.
 */
function createErrorHandler(headersOf: HeadersOf, send: SendBody) {
  return async (error: unknown, request: FastifyRequest, reply: FastifyReply): Promise<void> => {
    const { call } = request;
    const apiError = toHttpError(error);
    const response = toErrorResponse(request.raw, apiError, call.requestId);
    if (response === undefined) throw error;
    call.error = apiError;
    reply
      .code(response.status)
      .headers(response.status >= 400 ? headersOf(apiError) : {})
      .headers({ ...noStoreHeaders, ...response.headers });
    send(request, reply, response.body);
  };
}

/** An error as the response to an RPC. */
export interface ErrorResponse {
  readonly status: number;
  readonly headers: Record<string, string>;
  readonly body: string;
}

/** Encodes an error in the protocol of the request; undefined if it uses none of the RPC protocols. */
export function toErrorResponse(
  request: IncomingMessage,
  error: ApiError,
  requestId: string,
): ErrorResponse | undefined {
  const format = formatOf(request);
  if (format === undefined || request.method !== "POST") return undefined;
  const connectError = toConnectError(error, requestId);
  if (format.framed) {
    const headers = Object.fromEntries(setTrailerStatus(new Headers(), connectError));
    return {
      status: 200,
      headers: {
        ...headers,
        "content-type": request.headers["content-type"] ?? "",
        ...(error.options.acceptEncoding && { "grpc-accept-encoding": error.options.acceptEncoding }),
      },
      body: "",
    };
  }
  return {
    status: codeToHttpStatus(connectError.code),
    headers: { "content-type": "application/json" },
    body: Buffer.from(errorToJsonBytes(connectError, undefined)).toString(),
  };
}

/** The timeout that the client set, in the format of its protocol. */
function timeoutOf({ headers }: Pick<IncomingMessage, "headers">) {
  const isGrpcWeb = formatOf({ headers })?.framed === true;
  const timeout = headers[isGrpcWeb ? "grpc-timeout" : "connect-timeout-ms"];
  return [isGrpcWeb ? "grpc" : "connect", timeout?.toString()] as const;
}

/** The content types that Connect accepts. JSON is UTF-8, with or without a charset parameter. */
const contentTypes = /^application\/(?:(grpc-web)|(grpc-web\+)?(?:proto|(json)(?:; ?charset=utf-?8)?))$/i;

/** The format of the body of an RPC; undefined if its content type belongs to none of the RPC protocols. */
function formatOf({ headers }: Pick<IncomingMessage, "headers">): BodyFormat | undefined {
  const [match, grpcWeb, grpcWebPrefix, json] = contentTypes.exec(headers["content-type"] ?? "") ?? [];
  if (match === undefined) return undefined;
  return { framed: (grpcWeb ?? grpcWebPrefix) !== undefined, codec: json === undefined ? "proto" : "json" };
}
