import { type FastifyInstance, type FastifyReply, type FastifyRequest, fastify } from "fastify";
import { catalogue, methodNotAllowed, routeNotFound } from "../errors.js";
import type { Log } from "../observe/log.js";
import { connectDoor } from "../rpc/connect.js";
import { admitCall, beginCall, logHttpCall, performCall, toHttpFailure } from "../rpc/http-call.js";
import { largestMessage, type Procedure } from "../rpc/pipeline.js";
import { parseBody } from "./body.js";
import { answerOddHttp, refuseBrokenHttp, refuseOddHttp } from "./broken-http.js";
import { drainOnClose } from "./drain.js";
import { failureBody, failureHeaders, successBody } from "./envelope.js";
import { errorPages } from "./pages.js";
import { type Route, routesOf } from "./routes.js";

export interface GatewayOptions {
  readonly procedures: readonly Procedure[];
  /** How the service stands; throws if it cannot serve. */
  readonly readiness: () => Promise<Readonly<Record<string, string>>>;
  /** How long running calls may take to finish once the server closes. */
  readonly drainMs: number;
  /** What error URLs begin with; asked at each failure, because the port may be known only once it is open. */
  readonly docsBase: () => string;
  readonly log: Log;
}

/** The HTTP port: the HTTP/JSON door, with the Connect door beside it. */
export async function createGateway(options: GatewayOptions): Promise<FastifyInstance> {
  const { procedures, readiness, drainMs, docsBase, log } = options;
  const server = fastify({
    logger: false,
    bodyLimit: largestMessage,
    requestTimeout: 30_000,
    forceCloseConnections: "idle",
    http: { requireHostHeader: false }, // we refuse it ourselves, with the envelope
    frameworkErrors: (error, request, reply) => {
      request.call = beginCall();
      fail(error, request, reply);
    },
    clientErrorHandler: (error, socket) => refuseBrokenHttp(error, socket, docsBase(), log),
  });

  /** Every failure of this door ends here. */
  function fail(error: unknown, request: FastifyRequest, reply: FastifyReply): void {
    const failure = toHttpFailure(error);
    const { call } = request;
    call.failure = failure;
    reply
      .code(catalogue[failure.code].status)
      .headers({ ...failureHeaders(failure), "x-request-id": call.requestId })
      .type("application/json; charset=utf-8")
      .send(failureBody(failure, call.requestId, docsBase()));
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
  server.addHook("onRequest", async (request, reply) => {
    request.call = beginCall();
    reply.header("x-request-id", request.call.requestId);
    refuseOddHttp(request.raw);
  });
  server.addHook("onResponse", async (request, reply) => logHttpCall(log, request, reply));
  server.setErrorHandler(fail);
  server.setNotFoundHandler(({ method, url }) => {
    const path = url.replace(/\?.*$/s, "");
    const methods = allowed.get(path);
    throw methods ? methodNotAllowed(method, path, [...methods].sort()) : routeNotFound();
  });
  drainOnClose(server, drainMs);
  answerOddHttp(server.server, docsBase, log);

  for (const route of routesOf(procedures)) addRoute(server, route);
  server.get("/v2/liveness", async ({ call }, reply) =>
    answer(reply, successBody(call.requestId, { status: "alive" })),
  );
  server.get("/readyz", async ({ call }, reply) => answer(reply, successBody(call.requestId, await readiness())));
  await server.register(errorPages(docsBase));
  await server.register(connectDoor(procedures));
  return server;
}

function addRoute(server: FastifyInstance, { procedure, httpMethod, path, read, write }: Route): void {
  server.route({
    method: httpMethod,
    url: path,
    onRequest: (request) => admitCall(request, procedure),
    handler: async (request, reply) => {
      const response = await performCall(request.call, () =>
        read(httpMethod === "GET" ? request.query : parseBody(request)),
      );
      const { data, pagination } = write(response);
      return answer(reply, successBody(request.call.requestId, data, pagination));
    },
  });
}

function answer(reply: FastifyReply, body: string): FastifyReply {
  return reply.type("application/json; charset=utf-8").send(body);
}
