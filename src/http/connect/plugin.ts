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
import { refuseBadTimeout, timeoutMs } from "../../rpc/timeout.js";
import { admitCall, type HttpCall, neverCached, performCall, type SendBody, tenantOf, toHttpError } from "../call.js";
import { readBody } from "../request-body.js";
import { type BodyFormat, refuseCompressed, refuseUndecodable } from "./body.js";

const callKey = createContextKey<HttpCall | undefined>(undefined);

/**
 * The Connect and gRPC-Web protocol, in a scope of its own on the HTTP port.
 *
 * @param headersOf what any answer over HTTP brings along with a failure
 */
export function connectPlugin(procedures: readonly Procedure[], headersOf: HeadersOf, send: SendBody) {
  const byPath = new Map(procedures.map((procedure) => [procedure.path, procedure]));
  const { handlers } = createRouter(procedures);

  return async (scope: FastifyInstance): Promise<void> => {
    scope.setErrorHandler(createWriteRefusal(headersOf, send));
    // Without a promise where the caller is known at once: the body begins to come in the meantime, in the name of strangers.
    scope.addHook("onRequest", (request, _reply, done) => {
      const procedure = byPath.get(request.routeOptions.url ?? "");
      if (procedure === undefined) return done();
      const { call } = request;
      call.protocol = "connect";
      // From the first byte, however long the body takes to come.
      const [timeoutProtocol, timeout] = timeoutOf(request);
      call.deadline = Math.min(call.deadline, call.startedAt + timeoutMs(timeoutProtocol, timeout));
      const admitted = chain(admitCall(request, procedure), () => {
        const protocol = protocolOf(request);
        if (protocol === undefined) {
          throw unsupportedMediaType(
            "An RPC is called with a body of application/json, application/proto or gRPC-Web.",
          );
        }
        refuseCompressed(protocol, request.headers);
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
        await answer(handler, request, reply, send);
        return reply;
      });
    }
  };
}

/** Connect's own handlers. They neither read nor write compressed messages: a few bytes of a client would cost us many. */
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
 * Has Connect answer, and sends its answer as any other of this port. By hand: the plugin for Fastify writes answers past
 * Fastify, so that nobody can tell how large they are before they are written, and how they ended.
 */
async function answer(handler: UniversalHandler, request: FastifyRequest, reply: FastifyReply, send: SendBody) {
  const { status, header, body } = await handler(toUniversal(request));
  const pieces: Uint8Array[] = [];
  for await (const piece of body ?? []) pieces.push(piece);
  reply.code(status).headers(neverCached);
  for (const [name, value] of header ?? []) reply.header(name, value);
  send(request, reply, Buffer.concat(pieces));
}

function toUniversal({ call, raw, body }: FastifyRequest): UniversalServerRequest {
  const header = new Headers();
  for (const [name, value] of Object.entries(raw.headers)) if (value !== undefined) header.set(name, String(value));
  return {
    httpVersion: raw.httpVersion,
    method: raw.method ?? "",
    url: `http://localhost${call.procedure?.path}`,
    header,
    body: inOnePiece(body as Buffer),
    signal: new AbortController().signal, // the pipeline knows when the client leaves
    contextValues: createContextValues().set(callKey, call),
  };
}

function refuseBadBody(request: FastifyRequest): void {
  const protocol = protocolOf(request);
  const schema = request.call.procedure?.method.input;
  if (protocol === undefined || schema === undefined) throw new Error("an RPC's body was read before it was admitted");
  refuseBadTimeout(...timeoutOf(request));
  refuseUndecodable(schema, protocol, request.body as Buffer);
}

/** What Connect takes for a stream of bytes. */
async function* inOnePiece(body: Buffer): AsyncGenerator<Buffer> {
  yield body;
}

/** Connect has decoded the message by now; the rest of the way is the pipeline's. */
async function handle(message: Message, context: HandlerContext): Promise<Message> {
  const call = context.values.get(callKey);
  if (call === undefined) throw new Error("a Connect call came without its HTTP call");
  try {
    return await performCall(call, () => message);
  } catch (error) {
    call.failure = toApiError(error);
    throw toConnectError(call.failure, call.requestId);
  }
}

type HeadersOf = (failure: ApiError) => Readonly<Record<string, string>>;

/**
 * Answers a call that was refused before Connect saw it, in the protocol that it came in. What came in none of them is
 * thrown on, to the scope around this one, which answers any HTTP client.
 */
function createWriteRefusal(headersOf: HeadersOf, send: SendBody) {
  return async (error: unknown, request: FastifyRequest, reply: FastifyReply): Promise<void> => {
    const { call } = request;
    const failure = toHttpError(error);
    const refusal = toRefusal(request.raw, failure, call.requestId);
    if (refusal === undefined) throw error;
    call.failure = failure;
    reply
      .code(refusal.status)
      .headers(refusal.status >= 400 ? headersOf(failure) : {})
      .headers({ ...neverCached, ...refusal.headers });
    send(request, reply, refusal.body);
  };
}

/** A failure as the answer to an RPC. */
export interface Refusal {
  readonly status: number;
  readonly headers: Record<string, string>;
  readonly body: string;
}

/** A failure in the protocol that a request came in; undefined if it came in none of them. */
export function toRefusal(request: IncomingMessage, failure: ApiError, requestId: string): Refusal | undefined {
  const protocol = protocolOf(request);
  if (protocol === undefined || request.method !== "POST") return undefined;
  const error = toConnectError(failure, requestId);
  if (protocol.framed) {
    const headers = Object.fromEntries(setTrailerStatus(new Headers(), error));
    return {
      status: 200,
      headers: {
        ...headers,
        "content-type": request.headers["content-type"] ?? "",
        ...(failure.more.acceptEncoding && { "grpc-accept-encoding": failure.more.acceptEncoding }),
      },
      body: "",
    };
  }
  return {
    status: codeToHttpStatus(error.code),
    headers: { "content-type": "application/json" },
    body: Buffer.from(errorToJsonBytes(error, undefined)).toString(),
  };
}

/** For how long the client waits, in the words of its protocol. */
function timeoutOf({ headers }: Pick<IncomingMessage, "headers">) {
  const ofGrpc = protocolOf({ headers })?.framed === true;
  const given = headers[ofGrpc ? "grpc-timeout" : "connect-timeout-ms"];
  return [ofGrpc ? "grpc" : "connect", given?.toString()] as const;
}

/** The types that Connect reads, as it reads them: text is UTF-8, whether that is said or not. */
const protocols = /^application\/(?:(grpc-web)|(grpc-web\+)?(?:proto|(json)(?:; ?charset=utf-?8)?))$/i;

/** How the body of an RPC is to be read; undefined if it is in none of the protocols. */
function protocolOf({ headers }: Pick<IncomingMessage, "headers">): BodyFormat | undefined {
  const [known, grpcWeb, grpcWebWith, json] = protocols.exec(headers["content-type"] ?? "") ?? [];
  if (known === undefined) return undefined;
  return { framed: (grpcWeb ?? grpcWebWith) !== undefined, codec: json === undefined ? "proto" : "json" };
}
