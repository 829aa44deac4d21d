import type { Server } from "node:http";
import { type FastifyInstance, type FastifyReply, type FastifyRequest, fastify } from "fastify";
import type { Certificates } from "../certificates.js";
import { catalogue, methodNotAllowed, routeNotFound } from "../errors.js";
import type { LogCall } from "../observe/calls.js";
import { limitConnections } from "../overload/connections.js";
import type { Limits } from "../overload/limits.js";
import type { Room } from "../overload/room.js";
import { connectDoor } from "../rpc/connect.js";
import { admitCall, beginCall, logHttpCall, performCall, toHttpFailure } from "../rpc/http-call.js";
import { largestMessage, type Procedure } from "../rpc/pipeline.js";
import { after } from "../soon.js";
import { parseBody } from "./body.js";
import { answerOddHttp, refuseBrokenHttp, refuseOddHttp } from "./broken-http.js";
import { watchConnections } from "./busy-connections.js";
import { type DrainTimes, drainOnClose } from "./drain.js";
import { failureBody, failureHeaders, successBody, successMembers } from "./envelope.js";
import { createHttpServer } from "./http-server.js";
import { pages } from "./pages.js";
import { apiReference } from "./reference.js";
import { type Route, routesOf } from "./routes.js";
import { type ShedOptions, shedRequests } from "./shed.js";
import { weighBodies } from "./weigh.js";

export interface GatewayOptions extends DrainTimes, ShedOptions {
  readonly procedures: readonly Procedure[];
  /** How the service stands; throws if it cannot serve. */
  readonly readiness: () => Promise<Readonly<Record<string, string>>>;
  /** Undefined: the port is not encrypted. */
  readonly certificates: Certificates | undefined;
  /** How many connections the port takes. */
  readonly maxConnections: number;
  readonly limits: Limits;
  readonly room: Room;
  /** Where gRPC is served, for the first page; asked when that is. */
  readonly grpcPort: () => number;
  readonly logCall: LogCall;
}

/** The HTTP port: the HTTP/JSON door, with the Connect door beside it. */
export async function createGateway(options: GatewayOptions): Promise<FastifyInstance> {
  const { procedures, readiness, certificates, limits, docsBase, grpcPort, logCall } = options;
  const server = fastify({
    logger: false,
    bodyLimit: largestMessage,
    return503OnClosing: false, // what comes on an open connection is served to the last
    serverFactory(handler) {
      const serve = weighBodies(handler, options.room, limits);
      const listener = shedRequests(serve, options, () => server.listening);
      const server: Server = createHttpServer(listener, certificates, limits);
      watchConnections(server, limitConnections(server, options.maxConnections, options.shedding));
      return server;
    },
    frameworkErrors: (error, request, reply) => {
      request.call = beginCall(request.raw, reply.raw);
      fail(error, request, reply);
    },
    clientErrorHandler: (error, socket) => refuseBrokenHttp(error, socket, limits, docsBase(), logCall),
  });

  drainOnClose(server, options);

  /** Every success of this door ends here. */
  function answer(request: FastifyRequest, reply: FastifyReply, members: string): void {
    send(request, reply, successBody(request.call.requestId, members));
  }

  /** Every failure of this door ends here. */
  function fail(error: unknown, request: FastifyRequest, reply: FastifyReply): void {
    const failure = toHttpFailure(error);
    const { call } = request;
    call.failure = failure;
    reply.code(catalogue[failure.code].status).headers(failureHeaders(failure));
    send(request, reply, failureBody(failure, call.requestId, docsBase()));
  }

  function send(request: FastifyRequest, reply: FastifyReply, body: string): void {
    if (request.call.answerHeaders !== undefined) reply.headers(request.call.answerHeaders);
    reply
      .header("content-type", "application/json; charset=utf-8")
      .header("x-request-id", request.call.requestId)
      .send(body);
    logHttpCall(logCall, request, reply);
  }

  // Bodies stay bytes until the caller is admitted; only JSON is read at all.
  server.removeAllContentTypeParsers();
  server.addContentTypeParser("application/json", { parseAs: "buffer" }, (_request, body, done) => done(null, body));

  // Which methods each path takes. Fastify alone would answer 404 to the others.
  const allowed = new Map<string, Set<string>>();
  server.addHook("onRoute", ({ url, method }) => {
    allowed.set(url, new Set([...(allowed.get(url) ?? []), ...[method].flat()]));
  });

  server.decorateRequest("call");
  server.addHook("onRequest", (request, reply, done) => {
    request.call = beginCall(request.raw, reply.raw);
    refuseOddHttp(request.raw, limits);
    done();
  });
  server.setErrorHandler(fail);
  server.setNotFoundHandler(({ method, url }) => {
    const path = url.replace(/\?.*$/s, "");
    const methods = allowed.get(path);
    throw methods ? methodNotAllowed(method, path, [...methods].sort()) : routeNotFound();
  });
  answerOddHttp(server.server, docsBase, logCall);

  for (const route of routesOf(procedures)) addRoute(route);
  for (const path of ["/v2/liveness", "/livez"]) {
    server.get(path, (request, reply) => answer(request, reply, successMembers({ status: "alive" })));
  }
  server.get("/readyz", async (request, reply) => answer(request, reply, successMembers(await readiness())));
  // Doors that answer by themselves are watched by hooks. Our own answers do without, because every call would pay.
  await server.register(async (watched) => {
    watched.addHook("onRequest", async (request, reply) => {
      reply.header("x-request-id", request.call.requestId);
      // A client that goes away gets no answer, so Fastify has none to tell of. Its call has ended a moment later.
      reply.raw.once("close", () => setImmediate(logHttpCall, logCall, request, reply));
    });
    watched.addHook("onResponse", async (request, reply) => logHttpCall(logCall, request, reply));
    await watched.register(pages(docsBase, grpcPort));
    await watched.register(apiReference(docsBase));
    await watched.register(connectDoor(procedures, failureHeaders));
  });
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
        after(
          performCall(request.call, () => read(httpMethod === "GET" ? request.query : parseBody(request))),
          (response) => answer(request, reply, write(response)),
        ),
    });
  }
}
