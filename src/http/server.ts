import type { Server, ServerResponse } from "node:http";
import { type FastifyInstance, type FastifyReply, type FastifyRequest, fastify } from "fastify";
import { chain } from "../call/maybe-promise.js";
import { catalogue, methodNotAllowed, routeNotFound } from "../errors.js";
import type { Certificates } from "../net/certificates.js";
import type { AccessLog } from "../observe/access-log.js";
import { limitConnections } from "../overload/connections.js";
import type { Limits } from "../overload/limits.js";
import type { MemoryBudget } from "../overload/memory-budget.js";
import type { Procedure } from "../rpc/pipeline.js";
import { admitCall, beginCall, logHttpCall, performCall, reserveResponse, tenantOf, toHttpError } from "./call.js";
import { handleClientError, handleUnsupportedHttp, rejectUnsupportedHttp } from "./client-errors.js";
import { connectPlugin } from "./connect/plugin.js";
import { watchConnections } from "./connections.js";
import { type DrainTimes, drainOnClose } from "./drain.js";
import { parseBody } from "./json/body.js";
import { errorBody, errorHeaders, jsonHeaders, successBody, successMembers } from "./json/envelope.js";
import { type Route, routesOf } from "./json/routes.js";
import { createHttpServer } from "./listener.js";
import { pages } from "./pages/index.js";
import { apiReference } from "./pages/openapi.js";
import { serveInTurn } from "./pipelining.js";
import { collectBody, readBody, unreservedBytes } from "./request-body.js";
import { type ShedOptions, shedRequests } from "./shed.js";
import { watchUnread } from "./unread-responses.js";

export interface HttpPortOptions extends DrainTimes, ShedOptions {
  readonly procedures: readonly Procedure[];
  /** How the service stands; throws if it cannot serve. */
  readonly readiness: () => Promise<Readonly<Record<string, string>>>;
  /** Undefined: the port is not encrypted. */
  readonly certificates: Certificates | undefined;
  /** How many connections the port takes. */
  readonly maxConnections: number;
  readonly limits: Limits;
  readonly memory: MemoryBudget;
  /** Where gRPC is served, for the first page; asked when that is. */
  readonly grpcPort: () => number;
  readonly logCall: AccessLog;
}

/** The HTTP port: the HTTP/JSON protocol, with the Connect protocol beside it. */
export async function createHttpPort(options: HttpPortOptions): Promise<FastifyInstance> {
  const { procedures, readiness, certificates, limits, memory, docsBase, grpcPort, logCall } = options;
  const server = fastify({
    logger: false,
    return503OnClosing: false, // what comes on an open connection is served to the last
    serverFactory(handler) {
      const serve = serveInTurn(
        shedRequests(handler, options, () => server.listening),
        memory,
        limits,
      );
      const unread = watchUnread(memory, limits);
      const server: Server = createHttpServer(
        (request, response) => {
          collectBody(request, response, memory);
          serve(request, response);
        },
        certificates,
        limits,
        unread.Response as typeof ServerResponse,
      );
      server.once("close", unread.end);
      watchConnections(server, limitConnections(server, options.maxConnections, options.shedding));
      return server;
    },
    frameworkErrors: (error, request, reply) => {
      request.call = beginCall(request.raw, reply.raw);
      fail(error, request, reply);
    },
    clientErrorHandler: (error, socket) => handleClientError(error, socket, limits, docsBase(), logCall),
  });

  drainOnClose(server, options);

  /** Every success of HTTP/JSON ends here. */
  function answer(request: FastifyRequest, reply: FastifyReply, members: string): void {
    reply.headers(jsonHeaders);
    send(request, reply, successBody(request.call.requestId, members));
  }

  /** Every failure of HTTP/JSON ends here. */
  function fail(error: unknown, request: FastifyRequest, reply: FastifyReply): void {
    const failure = toHttpError(error);
    const { call } = request;
    call.failure = failure;
    reply.code(catalogue[failure.code].status).headers(jsonHeaders).headers(errorHeaders(failure));
    send(request, reply, errorBody(failure, call.requestId, docsBase()));
  }

  /** Every response of this port ends here, and is logged here. Throws if there is no memory for it. */
  function send(request: FastifyRequest, reply: FastifyReply, body: string | Buffer | undefined): void {
    const { call } = request;
    let sent = body;
    if (body !== undefined && body.length > unreservedBytes) {
      // As text, it would be there three times for as long as it is not read.
      const bytes = typeof body === "string" ? Buffer.from(body) : body;
      reserveResponse(memory, call, reply.raw, bytes.length);
      sent = bytes;
    }
    if (call.responseHeaders !== undefined) reply.headers(call.responseHeaders);
    reply.header("x-request-id", call.requestId).send(sent);
    logHttpCall(logCall, request, reply);
  }

  // Bodies stay bytes until the caller is admitted; only JSON is read at all.
  server.removeAllContentTypeParsers();
  server.addContentTypeParser("application/json", ({ raw, call }, _payload, done) =>
    readBody(raw, tenantOf(call), done),
  );

  // Which methods each path takes. Fastify alone would answer 404 to the others.
  const allowed = new Map<string, Set<string>>();
  server.addHook("onRoute", ({ url, method }) => {
    allowed.set(url, new Set([...(allowed.get(url) ?? []), ...[method].flat()]));
  });

  server.decorateRequest("call");
  server.addHook("onRequest", (request, reply, done) => {
    request.call = beginCall(request.raw, reply.raw);
    try {
      rejectUnsupportedHttp(request.raw, limits);
    } catch (error) {
      reply.header("connection", "close"); // where it ends may be read in another way, too
      throw error;
    }
    // Fastify decodes a path before it looks for the route: a proxy's rules about paths would not hold.
    const route = request.routeOptions.url;
    if (route !== undefined && !isSpelled(request.url, route)) throw routeNotFound();
    done();
  });
  server.setErrorHandler(fail);
  server.setNotFoundHandler(({ method, url }) => {
    const path = url.replace(/\?.*$/s, "");
    const methods = allowed.get(path);
    throw methods ? methodNotAllowed(method, path, [...methods].sort()) : routeNotFound();
  });
  handleUnsupportedHttp(server.server, docsBase, logCall);

  for (const route of routesOf(procedures)) addRoute(route);
  for (const path of ["/v2/liveness", "/livez"]) {
    server.get(path, (request, reply) => answer(request, reply, successMembers({ status: "alive" })));
  }
  server.get("/readyz", async (request, reply) => answer(request, reply, successMembers(await readiness())));
  await server.register(pages(docsBase, grpcPort, send));
  await server.register(apiReference(docsBase, send));
  await server.register(connectPlugin(procedures, errorHeaders, send));
  return server;

  function addRoute({ procedure, httpMethod, path, read, write }: Route): void {
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
          performCall(request.call, () => read(httpMethod === "GET" ? request.query : parseBody(request))),
          (response) => answer(request, reply, write(response)),
        ),
    });
  }
}

/** Whether the path of a URL is, byte for byte, that of a route. */
function isSpelled(url: string, path: string): boolean {
  return url.startsWith(path) && (url.length === path.length || url[path.length] === "?");
}
