// Written by hand: Connect's own handlers decode a request themselves, so that each would be decoded twice, first to
// find its errors. Its Fastify plugin also bypasses Fastify when it writes a response, so that neither its size before
// it is written nor its outcome is known.
import type { IncomingMessage } from "node:http";
import type { FastifyInstance, FastifyReply, FastifyRequest } from "fastify";
import { chain } from "../../call/maybe-promise.js";
import { type ApiError, unsupportedMediaType } from "../../errors.js";
import type { Procedure } from "../../rpc/pipeline.js";
import { timeoutMs, validateTimeout } from "../../rpc/timeout.js";
import { admitCall, noStoreHeaders, performCall, type SendBody, tenantOf, toHttpError } from "../call.js";
import { readBody } from "../request-body.js";
import { contentTypeOf, decodeBody, encodeBody, formatOf, refuseCompressed } from "./body.js";
import { toErrorResponse } from "./error-response.js";

type HeadersOf = (error: ApiError) => Readonly<Record<string, string>>;

/**
 * The unary calls of the Connect and gRPC-Web protocols, in a Fastify scope of their own on the HTTP port.
 *
 * @param headersOf the headers of any error response over HTTP
 */
export function connectPlugin(procedures: readonly Procedure[], headersOf: HeadersOf, send: SendBody) {
  return async (scope: FastifyInstance): Promise<void> => {
    scope.setErrorHandler(createErrorHandler(headersOf, send));
    scope.removeAllContentTypeParsers();
    scope.addContentTypeParser("*", ({ raw, call }: FastifyRequest, _payload, done) =>
      readBody(raw, tenantOf(call), done),
    );
    for (const procedure of procedures) addRoute(scope, procedure, send);
  };
}

function addRoute(scope: FastifyInstance, procedure: Procedure, send: SendBody): void {
  const { input, output } = procedure.method;
  scope.route({
    method: "POST",
    url: procedure.path,
    // Synchronous if the caller is known at once: while a promise is pending, the body arrives without a tenant.
    onRequest(request, _reply, done) {
      const { call } = request;
      call.protocol = "connect";
      // The timeout counts from the first byte, and includes the time in which the body arrives.
      call.deadline = Math.min(call.deadline, call.startedAt + timeoutMs(...timeoutOf(request)));
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
    },
    handler(request, reply) {
      const format = formatOf(request);
      if (format === undefined) throw new Error("a body was read before the call was admitted");
      validateTimeout(...timeoutOf(request));
      const decode = () => decodeBody(input, format, request.body as Buffer);
      return chain(performCall(request.call, decode), (response) => {
        reply.headers(noStoreHeaders).header("content-type", contentTypeOf(format));
        send(request, reply, encodeBody(output, format, response));
      });
    },
  });
}

/**
 * Creates the error handler of both protocols. It responds in the protocol of the request. If the request uses neither,
 * it rethrows, and the outer scope responds as to any HTTP client.
 */
function createErrorHandler(headersOf: HeadersOf, send: SendBody) {
  const sendError = (error: unknown, request: FastifyRequest, reply: FastifyReply): void => {
    const { call } = request;
    const apiError = toHttpError(error);
    const response = toErrorResponse(request.raw, apiError, call.requestId);
    if (response === undefined) throw error;
    call.error = apiError;
    reply
      .code(response.status)
      .headers(response.status >= 400 ? headersOf(apiError) : {})
      .headers({ ...noStoreHeaders, ...response.headers });
    // As bytes: Fastify would add a charset to the content type of a string.
    send(request, reply, Buffer.from(response.body));
  };
  return async (error: unknown, request: FastifyRequest, reply: FastifyReply): Promise<void> => {
    try {
      sendError(error, request, reply);
    } catch (thrown) {
      sendError(thrown, request, reply); // the memory budget is exhausted, or the outer scope responds
    }
  };
}

/** The timeout that the client set, in the format of its protocol. */
function timeoutOf({ headers }: Pick<IncomingMessage, "headers">) {
  const isGrpcWeb = formatOf({ headers })?.framed === true;
  const timeout = headers[isGrpcWeb ? "grpc-timeout" : "connect-timeout-ms"];
  return [isGrpcWeb ? "grpc" : "connect", timeout?.toString()] as const;
}
