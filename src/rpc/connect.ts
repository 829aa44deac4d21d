import type { IncomingMessage } from "node:http";
import type { Message } from "@bufbuild/protobuf";
import { createContextKey, createContextValues, type HandlerContext } from "@connectrpc/connect";
import { codeToHttpStatus, errorToJsonBytes } from "@connectrpc/connect/protocol-connect";
import { setTrailerStatus } from "@connectrpc/connect/protocol-grpc";
import { fastifyConnectPlugin } from "@connectrpc/connect-fastify";
import type { FastifyInstance, FastifyReply, FastifyRequest } from "fastify";
import { type Failure, mediaTypeUnsupported, methodNotAllowed } from "../errors.js";
import { type BodyFormat, refuseUndecodable } from "./connect-body.js";
import { admitCall, type HttpCall, performCall, toHttpFailure } from "./http-call.js";
import { largestMessage, type Procedure, toFailure } from "./pipeline.js";
import { toConnectError } from "./status.js";
import { refuseBadTimeout, timeoutMs } from "./timeouts.js";

const callKey = createContextKey<HttpCall | undefined>(undefined);

/**
 * The Connect and gRPC-Web door, in a scope of its own on the HTTP port.
 *
 * @param headersOf what any answer over HTTP brings along with a failure
 */
export function connectDoor(procedures: readonly Procedure[], headersOf: HeadersOf) {
  const byPath = new Map(procedures.map((procedure) => [procedure.path, procedure]));

  return async (scope: FastifyInstance): Promise<void> => {
    scope.setErrorHandler(createWriteRefusal(headersOf));
    scope.addHook("onRequest", async (request, reply) => {
      const { method, routeOptions } = request;
      const path = routeOptions.url ?? "";
      const procedure = byPath.get(path);
      if (procedure === undefined) return;
      if (method !== "POST") throw methodNotAllowed(method, path, ["POST"]);
      const { call } = request;
      call.door = "connect";
      // From the first byte, however long the body takes to come.
      const [protocol, timeout] = timeoutOf(request);
      call.deadline = Math.min(call.deadline, call.startedAt + timeoutMs(protocol, timeout));
      try {
        await admitCall(request, procedure);
      } finally {
        reply.headers(call.answerHeaders ?? {});
      }
      if (protocolOf(request) === undefined) {
        throw mediaTypeUnsupported("An RPC is called with a body of application/json, application/proto or gRPC-Web.");
      }
    });

    // Not registered but called, so that what it sets up is this scope's, and can be changed below.
    scope.removeAllContentTypeParsers();
    fastifyConnectPlugin(scope, connectOptions(procedures), () => {});

    // Left to itself, the plugin would read the body from the socket, and stop in the middle of one that is too large:
    // the connection could then neither be used again nor be closed.
    scope.removeAllContentTypeParsers();
    scope.addContentTypeParser("*", { parseAs: "buffer" }, async (request: FastifyRequest, body: Buffer) => {
      await refuseBadBody(request, body);
      return inOnePiece(body);
    });
  };
}

function connectOptions(procedures: readonly Procedure[]): Parameters<typeof fastifyConnectPlugin>[1] {
  return {
    readMaxBytes: largestMessage,
    jsonOptions: { ignoreUnknownFields: false },
    contextValues: ({ call }) => createContextValues().set(callKey, call),
    routes: (router) => {
      for (const { method } of procedures) router.rpc(method, handle);
    },
  };
}

async function refuseBadBody(request: FastifyRequest, body: Buffer): Promise<void> {
  const protocol = protocolOf(request);
  const schema = request.call.procedure?.method.input;
  if (protocol === undefined || schema === undefined) throw new Error("an RPC's body was read before it was admitted");
  refuseBadTimeout(...timeoutOf(request));
  await refuseUndecodable(schema, protocol, request.headers, body);
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
    call.failure = toFailure(error);
    throw toConnectError(call.failure, call.requestId);
  }
}

type HeadersOf = (failure: Failure) => Readonly<Record<string, string>>;

/**
 * Answers a call that was refused before Connect saw it, in the protocol that it came in. What came in none of them is
 * thrown on, to the scope around this one, which answers any HTTP client.
 */
function createWriteRefusal(headersOf: HeadersOf) {
  return async (error: unknown, request: FastifyRequest, reply: FastifyReply): Promise<void> => {
    const { call } = request;
    const failure = toHttpFailure(error);
    const refusal = toRefusal(request.raw, failure, call.requestId);
    if (refusal === undefined) throw error;
    call.failure = failure;
    await reply
      .code(refusal.status)
      .headers(refusal.status >= 400 ? headersOf(failure) : {})
      .headers({ ...refusal.headers, "x-request-id": call.requestId })
      .send(refusal.body);
  };
}

/** A failure as the answer to an RPC. */
export interface Refusal {
  readonly status: number;
  readonly headers: Record<string, string>;
  readonly body: string;
}

/** A failure in the protocol that a request came in; undefined if it came in none of them. */
export function toRefusal(request: IncomingMessage, failure: Failure, requestId: string): Refusal | undefined {
  const protocol = protocolOf(request);
  if (protocol === undefined || request.method !== "POST") return undefined;
  const error = toConnectError(failure, requestId);
  if (protocol.framed) {
    const headers = Object.fromEntries(setTrailerStatus(new Headers(), error));
    return {
      status: 200,
      headers: { ...headers, "content-type": request.headers["content-type"] ?? "" },
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
