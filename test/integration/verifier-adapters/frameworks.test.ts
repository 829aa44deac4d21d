import { once } from "node:events";
import { createServer, type IncomingMessage } from "node:http";
import { type AddressInfo, connect } from "node:net";
import { setTimeout as sleep } from "node:timers/promises";
import { createClient } from "@connectrpc/connect";
import { connectNodeAdapter, createConnectTransport } from "@connectrpc/connect-node";
import grpc from "@grpc/grpc-js";
import type { Request, RequestHandler } from "express";
import Fastify, { type FastifyContextConfig, type FastifyRequest } from "fastify";
import { Hono, type MiddlewareHandler } from "hono";
import { afterAll, beforeAll, describe, expect, expectTypeOf, it, vi } from "vitest";
import { KeysService } from "../../../gen/latchkey/v1/keys_service_pb.js";
import { createProtobufClient } from "../../../src/client/protobuf.js";
import * as forConnect from "../../../src/verifier/adapters/connect.js";
import * as forExpress from "../../../src/verifier/adapters/express.js";
import * as forFastify from "../../../src/verifier/adapters/fastify.js";
import * as forGrpc from "../../../src/verifier/adapters/grpc.js";
import * as forHono from "../../../src/verifier/adapters/hono.js";
import { openVerifier, type ValidKey, type Verifier } from "../../../src/verifier/verifier.js";
import { openTestApp, operatorKey, type TestApp } from "../../support/harness.js";
import { jsonMethod, serveGrpc } from "./apis.js";

let app: TestApp;
let verifier: Verifier;
let key: string;
let keyId: string;
beforeAll(async () => {
  app = await openTestApp();
  const { workspaces } = createProtobufClient({ url: app.httpUrl, key: operatorKey });
  const { key: root } = await workspaces.createWorkspace({ name: "Acme" });
  const { keys } = createProtobufClient({ url: app.httpUrl, key: root });
  ({ key, keyId } = await keys.createKey({ permissions: ["documents.read"] }));
  const { key: own } = await keys.createKey({ scopes: ["keys.verify"] });
  verifier = await openVerifier({ address: `http://${app.grpcAddress}`, key: own });
});
afterAll(async () => {
  await verifier.close();
  await app.close();
});

/** On a busy machine, a grant can end before it is used. */
const longTimeout = { timeout: 20_000 };

describe("a permission query that is invalid", () => {
  const invalid = "documents.read AND";
  const message = /^The permission query is invalid: at position \d+/;

  it("stops an API with Fastify, Express or Hono at its start", async () => {
    const fastify = Fastify();
    await fastify.register(forFastify.latchkey, { verifier });
    expect(() => fastify.get("/", { config: { permissions: invalid } }, () => "")).toThrow(message);
    await fastify.close();
    expect(() => forExpress.latchkey({ verifier })(invalid)).toThrow(message);
    expect(() => forHono.latchkey({ verifier })(invalid)).toThrow(message);
    expect(() => forHono.latchkey({ verifier })("a".repeat(1_001))).toThrow("more than 1000 characters");
  });

  it("is an internal error over gRPC, reported to the owner of the API", async () => {
    const errors: unknown[] = [];
    const method = jsonMethod("Read", false);
    const permissions = ({ path }: { path: string }) => {
      if (path === method.path) return invalid;
      if (path === missing.path) return null as unknown as undefined;
      throw new Error("no such method");
    };
    const options = { verifier, permissions, onError: (error: unknown) => errors.push(error) };
    const missing = jsonMethod("List", false);
    const other = jsonMethod("Write", false);
    const { client, close } = await serveGrpc(
      forGrpc.latchkey(options),
      { read: method, list: missing, write: other },
      { read: () => {}, list: () => {}, write: () => {} },
    );
    for (const { path, requestSerialize, responseDeserialize } of [method, missing, other]) {
      const call = new Promise((resolve, reject) => {
        const done: grpc.requestCallback<unknown> = (error, value) => (error ? reject(error) : resolve(value));
        client.makeUnaryRequest(path, requestSerialize, responseDeserialize, {}, bearerOf(key), done);
      });
      await expect(call).rejects.toMatchObject({ code: grpc.status.INTERNAL });
    }
    expect(errors).toMatchObject([
      { code: "invalid_input" },
      { message: expect.stringMatching("must be a query, undefined") },
      { message: "no such method" },
    ]);
    close();
  });
});

function bearerOf(secret: string): grpc.Metadata {
  const metadata = new grpc.Metadata();
  metadata.set("authorization", `Bearer ${secret}`);
  return metadata;
}

describe("a stream", () => {
  it("over gRPC begins once its key is verified, with all of its messages", async () => {
    const echo = jsonMethod("Echo", true);
    const { client, close } = await serveGrpc(
      forGrpc.latchkey({ verifier, permissions: () => "documents.read" }),
      { echo },
      {
        echo: (call: grpc.ServerDuplexStream<unknown, unknown>) => {
          const by = forGrpc.apiKeyOf(call).keyId;
          call.on("data", (message) => call.write({ message, by }));
          call.on("end", () => call.end());
        },
      },
    );
    const open = (metadata: grpc.Metadata) =>
      client.makeBidiStreamRequest(echo.path, echo.requestSerialize, echo.responseDeserialize, metadata);
    for (const round of [1, 2]) {
      const stream = open(bearerOf(key));
      for (const message of [1, 2, 3]) stream.write(message);
      stream.end();
      const echoed = [1, 2, 3].map((message) => ({ message, by: keyId }));
      expect(await stream.toArray(), `round ${round}`).toEqual(echoed);
    }
    const refused = open(new grpc.Metadata());
    refused.write(1);
    await expect(refused.toArray()).rejects.toMatchObject({ code: grpc.status.UNAUTHENTICATED });
    close();
  });

  it("of an unknown method needs a key, too", async () => {
    const read = jsonMethod("Read", false);
    const { client, close } = await serveGrpc(forGrpc.latchkey({ verifier }), { read }, { read: () => {} });
    const call = new Promise((resolve, reject) => {
      const done: grpc.requestCallback<unknown> = (error, value) => (error ? reject(error) : resolve(value));
      client.makeUnaryRequest("/a.B/C", read.requestSerialize, read.responseDeserialize, {}, bearerOf(key), done);
    });
    await expect(call).rejects.toMatchObject({ code: grpc.status.UNIMPLEMENTED });
    close();
  });
});

describe("Fastify", () => {
  it("protects the plugins that are registered later, and unknown routes", async () => {
    const fastify = Fastify();
    fastify.register(forFastify.latchkey, { verifier });
    fastify.register(async (child) => child.get("/child", ({ apiKey }) => apiKey.keyId));
    const authorization = `Bearer ${key}`;
    expect((await fastify.inject("/child")).statusCode).toBe(401);
    expect((await fastify.inject("/none")).statusCode).toBe(401);
    expect((await fastify.inject({ url: "/child", headers: { authorization } })).body).toBe(keyId);
    expect((await fastify.inject({ url: "/none", headers: { authorization } })).statusCode).toBe(404);
    await fastify.close();
  });

  it("refuses a request before its body is read", async () => {
    const fastify = Fastify();
    fastify.register(forFastify.latchkey, { verifier });
    fastify.post("/", () => "never");
    await fastify.listen({ host: "127.0.0.1", port: 0 });
    const socket = connect((fastify.server.address() as AddressInfo).port, "127.0.0.1");
    socket.write("POST / HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n");
    const [response] = await once(socket, "data");
    expect(String(response)).toMatch(/^HTTP\/1.1 401 /);
    socket.destroy();
    await fastify.close();
  });

  it("says that a public route has no key", async () => {
    const fastify = Fastify();
    fastify.register(forFastify.latchkey, { verifier });
    fastify.get("/", { config: { permissions: false } }, ({ apiKey }) => apiKey.keyId);
    expect((await fastify.inject("/")).json()).toMatchObject({ message: expect.stringContaining("needs none") });
    await fastify.close();
  });

  it("can use another verifier in a part of the API", async () => {
    const fastify = Fastify();
    fastify.register(forFastify.latchkey, { verifier, realm: "all" });
    fastify.register(async (child) => {
      child.register(forFastify.latchkey, { verifier, realm: "part" });
      child.get("/part", ({ apiKey }) => apiKey.keyId);
    });
    const headers = { authorization: `Bearer ${key}` };
    expect((await fastify.inject({ url: "/part", headers })).body).toBe(keyId);
    await fastify.close();
  });
});

describe("a key that is cached", () => {
  it("is verified by middleware without a turn of the event loop", async () => {
    const requireKey = forExpress.latchkey({ verifier })("documents.read");
    const server = createServer((req: IncomingMessage & { apiKey?: ValidKey }, res) => {
      let isSynchronous = true;
      requireKey(req, res, () => res.end(String(isSynchronous)));
      isSynchronous = false;
    }).listen(0, "127.0.0.1");
    await once(server, "listening");
    const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
    await vi.waitUntil(async () => {
      const response = await fetch(url, { headers: { authorization: `Bearer ${key}` } });
      return (await response.text()) === "true";
    }, longTimeout);
    server.close();
  });
});

describe("Express", () => {
  it("does not respond again if the application has responded while the key was verified", async () => {
    const verify = () => sleep(10).then(() => Promise.reject(new Error("the service is gone")));
    const requireKey = forExpress.latchkey({ verifier: { verify } })();
    const server = createServer((req, res) => {
      requireKey(req, res, () => {});
      res.end("too late");
    }).listen(0, "127.0.0.1");
    await once(server, "listening");
    const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
    const response = await fetch(url, { headers: { authorization: `Bearer ${key}` } });
    expect(await response.text()).toBe("too late");
    await sleep(50); // an error would be an unhandled rejection, which fails the run
    server.close();
  });
});

describe("Connect", () => {
  it("returns the challenge with the error", async () => {
    const handler = connectNodeAdapter({
      interceptors: [forConnect.latchkey({ verifier, realm: 'the "best"' })],
      routes: (router) => router.service(KeysService, {}),
    });
    const server = createServer(handler).listen(0, "127.0.0.1");
    await once(server, "listening");
    const baseUrl = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
    const client = createClient(KeysService, createConnectTransport({ baseUrl, httpVersion: "1.1" }));
    const error = await client.whoami({ key: "a" }).catch((error) => error);
    expect(error.metadata.get("www-authenticate")).toBe('Bearer realm="the \\"best\\""');
    server.close();
    server.closeAllConnections();
  });
});

describe("the types of the adapters", () => {
  it("are those of the frameworks", () => {
    expectTypeOf<FastifyRequest["apiKey"]>().toEqualTypeOf<ValidKey>();
    expectTypeOf<FastifyContextConfig["permissions"]>().toEqualTypeOf<string | false | undefined>();
    expectTypeOf<Request["apiKey"]>().toEqualTypeOf<ValidKey | undefined>();
    expectTypeOf(forExpress.latchkey({ verifier })("a")).toExtend<RequestHandler>();
    expectTypeOf(forHono.latchkey({ verifier })("a")).toExtend<MiddlewareHandler>();
    new Hono().get("/", forHono.latchkey({ verifier })(), (c) => {
      expectTypeOf(c.get("apiKey")).toEqualTypeOf<ValidKey>();
      return c.json({});
    });
    expectTypeOf(forGrpc.apiKeyOf).returns.toEqualTypeOf<ValidKey>();
    expectTypeOf(forGrpc.latchkey({ verifier })).toExtend<grpc.ServerInterceptor>();
    // @ts-expect-error a verifier is required
    expect(() => forExpress.latchkey({})).not.toThrow();
  });
});
