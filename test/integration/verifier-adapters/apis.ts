import { once } from "node:events";
import { createServer, type IncomingMessage, request, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { setTimeout as sleep } from "node:timers/promises";
import { connectNodeAdapter } from "@connectrpc/connect-node";
import grpc from "@grpc/grpc-js";
import { createAdaptorServer } from "@hono/node-server";
import express from "express";
import Fastify from "fastify";
import { Hono } from "hono";
import { KeysService } from "../../../gen/latchkey/v1/keys_service_pb.js";
import * as forConnect from "../../../src/verifier/adapters/connect.js";
import * as forExpress from "../../../src/verifier/adapters/express.js";
import * as forFastify from "../../../src/verifier/adapters/fastify.js";
import * as forGrpc from "../../../src/verifier/adapters/grpc.js";
import * as forHono from "../../../src/verifier/adapters/hono.js";
import type { ValidKey } from "../../../src/verifier/verifier.js";
import { keep } from "../../support/artifacts.js";

/** What a user's API needs: the permission documents.read, any valid key, or no key. */
export type Route = "read" | "any" | "public";

/** The response of a user's API. */
export interface Answer {
  /** The HTTP status. That of a gRPC status for gRPC. */
  readonly status: number;
  readonly challenge: string | undefined;
  readonly retryAfter: string | undefined;
  /** The JSON body, or the message of an RPC. */
  readonly text: string;
  /** The verified key, as the handler sees it. */
  readonly keyId: string | undefined;
}

/** A user's API on a real server of one framework. */
export interface Api {
  /** Calls it with these Authorization headers. */
  call(route: Route, authorization: readonly string[]): Promise<Answer>;
  close(): Promise<unknown>;
}

/** Calls as a client does that retries after 503: on a busy machine, a grant can end before it is renewed. */
export async function callWithRetries(api: Api, ...call: Parameters<Api["call"]>): Promise<Answer> {
  for (;;) {
    const answer = await api.call(...call);
    if (answer.status !== 503) return answer;
    await sleep(20);
  }
}

export type Options = forFastify.AdapterOptions;

const query = "documents.read";

export const frameworks: Readonly<Record<string, (options: Options) => Promise<Api>>> = {
  async Fastify(options) {
    const app = Fastify();
    // Not awaited: the routes below are protected all the same.
    app.register(forFastify.latchkey, options);
    app.get("/read", { config: { permissions: query } }, ({ apiKey }) => ({ keyId: apiKey.keyId }));
    app.get("/any", ({ apiKey }) => ({ keyId: apiKey.keyId }));
    app.get("/public", { config: { permissions: false } }, () => ({}));
    await app.listen({ host: "127.0.0.1", port: 0 });
    return httpApi(app.server, () => app.close());
  },
  async Express(options) {
    const app = express();
    const requireKey = forExpress.latchkey(options);
    app.get("/read", requireKey(query), (req, res) => res.json({ keyId: req.apiKey?.keyId }));
    app.get("/any", requireKey(), (req, res) => res.json({ keyId: req.apiKey?.keyId }));
    app.get("/public", (req, res) => res.json({ keyId: req.apiKey?.keyId }));
    return serveHttp(createServer(app));
  },
  async "Node's http, with Connect-style middleware"(options) {
    const requireKey = forExpress.latchkey(options);
    const middleware = { "/read": requireKey(query), "/any": requireKey() };
    return serveHttp(
      createServer((req: IncomingMessage & { apiKey?: ValidKey }, res) => {
        const respond = () => res.end(JSON.stringify({ keyId: req.apiKey?.keyId }));
        if (req.url === "/public") respond();
        else middleware[req.url as keyof typeof middleware](req, res, respond);
      }),
    );
  },
  async Hono(options) {
    const app = new Hono();
    const requireKey = forHono.latchkey(options);
    app.get("/read", requireKey(query), (c) => c.json({ keyId: c.get("apiKey").keyId }));
    app.get("/any", requireKey(), (c) => c.json({ keyId: c.get("apiKey").keyId }));
    app.get("/public", (c) => c.json({}));
    // Other test files in this process need the global Response of Node: the Unkey client checks that its responses are one.
    return serveHttp(createAdaptorServer({ fetch: app.fetch, overrideGlobalObjects: false }) as Server);
  },
  async Connect(options) {
    const queries = { GetKey: query, Whoami: undefined, ListKeys: false } as const;
    const permissions = ({ name }: { name: string }) => queries[name as keyof typeof queries];
    const handler = connectNodeAdapter({
      interceptors: [forConnect.latchkey({ ...options, permissions })],
      routes: (router) =>
        router.service(KeysService, {
          getKey: (_, { values }) => ({ key: { keyId: values.get(forConnect.apiKey)?.keyId ?? "" } }),
          whoami: (_, { values }) => ({ key: { keyId: values.get(forConnect.apiKey)?.keyId ?? "" } }),
          listKeys: () => ({}),
        }),
    });
    const paths = { read: "GetKey", any: "Whoami", public: "ListKeys" };
    return serveHttp(createServer(handler), (route) => `/${KeysService.typeName}/${paths[route]}`, "{}");
  },
  "grpc-js": openGrpcApi,
};

async function serveHttp(server: Server, pathOf?: (route: Route) => string, body?: string): Promise<Api> {
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const close = () => {
    server.close();
    server.closeAllConnections();
    return once(server, "close");
  };
  return httpApi(server, close, pathOf, body);
}

function httpApi(
  server: Server,
  close: Api["close"],
  pathOf: (route: Route) => string = (route) => `/${route}`,
  body?: string,
): Api {
  const { port } = server.address() as AddressInfo;
  return {
    close,
    async call(route, authorization) {
      const headers = ["Host", "127.0.0.1", ...authorization.flatMap((value) => ["Authorization", value])];
      if (body !== undefined) headers.push("Content-Type", "application/json", "Content-Length", `${body.length}`);
      const method = body === undefined ? "GET" : "POST";
      const outgoing = request({ host: "127.0.0.1", port, method, path: pathOf(route), headers, agent: false });
      outgoing.end(body);
      const [incoming]: IncomingMessage[] = await once(outgoing, "response");
      if (incoming === undefined) throw new Error("a response event without a response");
      const text = Buffer.concat(await incoming.toArray()).toString();
      return answer(incoming.statusCode ?? 0, (name) => incoming.headers[name]?.toString(), text);
    },
  };
}

function answer(status: number, header: (name: string) => string | undefined, text: string): Answer {
  const challenge = header("www-authenticate");
  const retryAfter = header("retry-after");
  keep("refusals", [status, challenge, retryAfter, text].join(" "));
  const [, keyId] = /"keyId":"(\w+)"/.exec(text) ?? [];
  return { status, challenge, retryAfter, text, keyId };
}

const httpStatusOf: Readonly<Record<number, number>> = {
  [grpc.status.UNAUTHENTICATED]: 401,
  [grpc.status.PERMISSION_DENIED]: 403,
  [grpc.status.RESOURCE_EXHAUSTED]: 429,
  [grpc.status.UNAVAILABLE]: 503,
  [grpc.status.INTERNAL]: 500,
};

const toBytes = (value: unknown) => Buffer.from(JSON.stringify(value));
const fromBytes = (bytes: Buffer): unknown => JSON.parse(bytes.toString());

/** A method of a service whose messages are JSON. */
export function jsonMethod(name: string, isStream: boolean): grpc.MethodDefinition<unknown, unknown> {
  return {
    path: `/acme.v1.DocumentsService/${name}`,
    requestStream: isStream,
    responseStream: isStream,
    requestSerialize: toBytes,
    requestDeserialize: fromBytes,
    responseSerialize: toBytes,
    responseDeserialize: fromBytes,
  };
}

/** A gRPC server on a free port, with its client. */
export async function serveGrpc(
  interceptor: grpc.ServerInterceptor,
  methods: grpc.ServiceDefinition,
  handlers: grpc.UntypedServiceImplementation,
): Promise<{ client: grpc.Client; close(): void }> {
  const server = new grpc.Server({ interceptors: [interceptor] });
  server.addService(methods, handlers);
  const port = await new Promise<number>((resolve, reject) => {
    const insecure = grpc.ServerCredentials.createInsecure();
    server.bindAsync("127.0.0.1:0", insecure, (error, port) => (error ? reject(error) : resolve(port)));
  });
  const client = new grpc.Client(`127.0.0.1:${port}`, grpc.credentials.createInsecure());
  return {
    client,
    close() {
      client.close();
      server.forceShutdown();
    },
  };
}

async function openGrpcApi(options: Options): Promise<Api> {
  const methods = {
    read: jsonMethod("read", false),
    any: jsonMethod("any", false),
    public: jsonMethod("public", false),
  };
  const queries: Record<string, string | false | undefined> = {
    [methods.read.path]: query,
    [methods.public.path]: false,
  };
  const interceptor = forGrpc.latchkey({ ...options, permissions: ({ path }) => queries[path] });
  const handle: grpc.handleUnaryCall<unknown, unknown> = (call, respond) =>
    respond(null, { keyId: forGrpc.apiKeyOf(call).keyId });
  const { client, close } = await serveGrpc(interceptor, methods, {
    read: handle,
    any: handle,
    public: (_: unknown, respond: grpc.sendUnaryData<unknown>) => respond(null, {}),
  });
  return {
    async close() {
      close();
    },
    call: (route, authorization) =>
      new Promise((resolve) => {
        const metadata = new grpc.Metadata();
        for (const value of authorization) metadata.add("authorization", value);
        client.makeUnaryRequest(methods[route].path, toBytes, fromBytes, {}, metadata, (error, response) => {
          if (error === null) return resolve(answer(200, () => undefined, JSON.stringify(response)));
          const status = httpStatusOf[error.code] ?? error.code;
          resolve(answer(status, (name) => error.metadata.get(name)[0]?.toString(), error.details));
        });
      }),
  };
}
