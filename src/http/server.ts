import type { Server, ServerResponse } from "node:http";
import accepts from "@fastify/accepts";
import { type FastifyInstance, type FastifyReply, type FastifyRequest, fastify } from "fastify";
import { ErrorCode } from "../../gen/latchkey/v1/errors_pb.js";
import { chain } from "../call/maybe-promise.js";
import { type ApiError, catalogue, methodNotAllowed, routeNotFound } from "../errors.js";
import type { Certificates } from "../net/certificates.js";
import type { AccessLog } from "../observe/access-log.js";
import { limitConnections } from "../overload/connections.js";
import type { Limits } from "../overload/limits.js";
import type { MemoryBudget } from "../overload/memory-budget.js";
import type { Procedure } from "../rpc/pipeline.js";
import { admitCall, beginCall, logHttpCall, performCall, reserveResponse, tenantOf, toHttpError } from "./call.js";
import { acceptRequest, findUnsupportedHttp, handleClientError, handleUnsupportedHttp } from "./client-errors.js";
import { connectPlugin } from "./connect/plugin.js";
import { watchConnections } from "./connections.js";
import { createCors } from "./cors.js";
import { createDirectWriter } from "./direct-response.js";
import { type DrainOptions, drainOnClose } from "./drain.js";
import { assertInternals } from "./internals.js";
import { locateInBody, parseBody } from "./json/body.js";
import { errorBody, errorHeaders, errorMediaType, jsonHeaders, successBody, successMembers } from "./json/envelope.js";
import { type Route, routesOf } from "./json/routes.js";
import { createHttpServer } from "./listener.js";
import { notFoundHeaders, notFoundPage, pages, prefersHtml } from "./pages/index.js";
import { apiReference } from "./pages/openapi.js";
import { serveSequentially } from "./pipelining.js";
import { collectBody, readBody, unreservedBytes } from "./request-body.js";
import { recordResponse } from "./response-in-flight.js";
import { type ShedOptions, shedRequests, urlPathOf } from "./shed.js";
import { watchUnreadResponses } from "./unread-responses.js";

export interface HttpPortOptions extends DrainOptions, ShedOptions {
  readonly procedures: readonly Procedure[];
  /** The readiness of the service; throws if the service cannot serve. */
  readonly readiness: () => Promise<Readonly<Record<string, string>>>;
  /** Undefined if the port does not use TLS. */
  readonly certificates: Certificates | undefined;
  /** The maximum number of connections of the port. */
  readonly maxConnections: number;
  readonly limits: Limits;
  readonly memory: MemoryBudget;
  /** The origins whose pages may call; `*` for all. Empty: none. */
  readonly corsOrigins: readonly string[];
  /** The gRPC port, for the home page. A function, because it may be known only once that port is open. */
  readonly grpcPort: () => number;
  readonly logCall: AccessLog;
}

/** Creates the HTTP port, which serves the HTTP/JSON and Connect protocols. */
export async function createHttpPort(options: HttpPortOptions): Promise<FastifyInstance> {
  const { procedures, readiness, certificates, limits, memory, docsBase, grpcPort, logCall } = options;
  assertInternals();
  const cors = options.corsOrigins.length > 0 ? createCors(options.corsOrigins) : undefined;
  const server = fastify({
    logger: false,
    return503OnClosing: false, // requests on open connections are still served during shutdown
    serverFactory(handler) {
      const shedding = shedRequests(handler, options, () => server.listening);
      const serve = serveSequentially(cors?.serve(shedding) ?? shedding, memory, limits);
      const unreadResponses = watchUnreadResponses(memory, limits);
      const server: Server = createHttpServer(
        (request, response) => {
          acceptRequest(request, response);
          recordResponse(request, response);
          collectBody(request, response, memory);
          serve(request, response);
        },
        certificates,
        limits,
        unreadResponses.Response as typeof ServerResponse,
      );
      server.once("close", unreadResponses.stop);
      watchConnections(server, limitConnections(server, options.maxConnections, options.shedding));
      return server;
    },
    frameworkErrors: (error, request, reply) => {
      request.call = beginCall(request.raw, reply.raw);
      sendError(refuseUnsupported(request, reply) ?? error, request, reply);
    },
    clientErrorHandler: (error, socket) => handleClientError(error, socket, limits, docsBase(), logCall),
  });

  drainOnClose(server, options);
  await server.register(accepts);

  const writeDirectly = createDirectWriter(limits);

  /** The error of a request that uses unsupported features of HTTP. Its connection is closed after the response. */
  function refuseUnsupported(request: FastifyRequest, reply: FastifyReply): ApiError | undefined {
    const error = findUnsupportedHttp(request.raw, limits);
    if (error !== undefined) reply.header("connection", "close");
    return error;
  }

  /** Sends every successful response of HTTP/JSON. */
  function sendSuccess(request: FastifyRequest, reply: FastifyReply, members: string): void {
    const { call } = request;
    const body = successBody(call.requestId, members);
    if (writeDirectly(reply.raw, call, body)) {
      reply.hijack();
      logHttpCall(logCall, request, reply);
    } else {
      reply.headers(jsonHeaders);
      send(request, reply, body);
    }
  }

  /** Sends every error response of HTTP/JSON. */
  function sendError(error: unknown, request: FastifyRequest, reply: FastifyReply): void {
    const apiError = toHttpError(error);
    const { call } = request;
    call.error = apiError;
    if (apiError.code === ErrorCode.APPLICATION_ROUTE_NOT_FOUND && wantsPage(request)) {
      sendNotFoundPage(request, reply);
      return;
    }
    const mediaType = errorMediaType(apiError.code, call.procedure?.method);
    reply
      .code(catalogue[apiError.code].status)
      .headers({ ...jsonHeaders, "content-type": `${mediaType}; charset=utf-8` })
      .headers(errorHeaders(apiError));
    send(request, reply, errorBody(apiError, call.requestId, docsBase(request.raw)));
  }

  function sendNotFoundPage(request: FastifyRequest, reply: FastifyReply): void {
    try {
      send(request, reply.code(404).headers(notFoundHeaders), notFoundPage);
    } catch (error) {
      sendError(error, request, reply); // the memory budget is exhausted
    }
  }

  /** Sends and logs every response of this port. Throws if the memory budget is exhausted. */
  function send(request: FastifyRequest, reply: FastifyReply, body: string | Buffer | undefined): void {
    const { call } = request;
    let payload = body;
    if (body !== undefined && body.length > unreservedBytes) {
      // As a string, it would be in memory three times until the client has read it.
      const bytes = typeof body === "string" ? Buffer.from(body) : body;
      reserveResponse(memory, call, reply.raw, bytes.length);
      payload = bytes;
    }
    if (call.responseHeaders !== undefined) reply.headers(call.responseHeaders);
    reply.header("x-request-id", call.requestId).send(payload);
    logHttpCall(logCall, request, reply);
  }

  // Bodies are not parsed before the call is admitted. Only JSON is accepted.
  server.removeAllContentTypeParsers();
  server.addContentTypeParser("application/json", ({ raw, call }, _payload, done) =>
    readBody(raw, tenantOf(call), done),
  );

  // The methods of each path. Fastify by itself would respond 404 to the others.
  const methodsByPath = new Map<string, Set<string>>();
  server.addHook("onRoute", ({ url, method }) => {
    methodsByPath.set(url, new Set([...(methodsByPath.get(url) ?? []), ...[method].flat()]));
  });

  server.decorateRequest("call");
  server.addHook("onRequest", (request, reply, done) => {
    request.call = beginCall(request.raw, reply.raw);
    const unsupported = refuseUnsupported(request, reply);
    if (unsupported !== undefined) throw unsupported;
    const preflightHeaders = cors?.preflightHeaders(request.raw);
    if (preflightHeaders !== undefined) return send(request, reply.code(204).headers(preflightHeaders), undefined);
    // Fastify decodes a path before it finds the route, so an encoded path could bypass path rules of a proxy.
    const path = urlPathOf(request.url);
    const methods = methodsByPath.get(path);
    if (methods === undefined) throw routeNotFound();
    if (!methods.has(request.method)) throw methodNotAllowed(request.method, path, [...methods].sort());
    done();
  });
  server.setErrorHandler(sendError);
  handleUnsupportedHttp(server.server, docsBase, logCall);

  for (const route of routesOf(procedures)) addRoute(route);
  for (const path of ["/v2/liveness", "/livez"]) {
    server.get(path, (request, reply) => sendSuccess(request, reply, successMembers({ status: "alive" })));
  }
  server.get("/readyz", async (request, reply) => sendSuccess(request, reply, successMembers(await readiness())));
  await server.register(pages(docsBase, grpcPort, send));
  await server.register(apiReference(docsBase, send));
  await server.register(connectPlugin(procedures, errorHeaders, send));
  return server;

  function addRoute({ procedure, httpMethod, path, body, read, write }: Route): void {
    server.route({
      method: httpMethod,
      url: path,
      onRequest(request, _reply, done) {
        const admitted = admitCall(request, procedure);
        if (admitted instanceof Promise) admitted.then(() => done(), done);
        else done();
      },
      handler: (request, reply) =>
        chain(
          performCall(request.call, () => read(body === undefined ? request.query : parseBody(request, body))),
          (response) => sendSuccess(request, reply, write(response)),
        ),
      errorHandler: (error, request, reply) =>
        sendError(body === undefined ? error : locateInBody(toHttpError(error), body), request, reply),
    });
  }
}

/** Whether a client that requests an unknown path is a browser, which shows a page. */
function wantsPage(request: FastifyRequest): boolean {
  return (request.method === "GET" || request.method === "HEAD") && prefersHtml(request);
}
