import { once } from "node:events";
import { createServer, type RequestListener } from "node:http";
import type { AddressInfo } from "node:net";
import { inspect } from "node:util";
import { describe, expect, expectTypeOf, it, onTestFinished } from "vitest";
import {
  createClient,
  isLatchkeyError,
  type Key,
  type LatchkeyClientOptions,
  type LatchkeyError,
  NoResponseError,
  type Page,
} from "../../../src/client/client.js";
import { openFileApp } from "../../support/file-service.js";
import { operatorKey } from "../../support/harness.js";
import { rpcs } from "../../support/rpcs.js";

const app = await openFileApp();
const operator = createClient({ url: app.httpUrl, key: operatorKey });

/** A client of a new workspace. */
async function openClient(options: Partial<LatchkeyClientOptions> = {}) {
  const { key } = await operator.workspaces.createWorkspace({ name: "Acme" });
  return { key, client: createClient({ url: app.httpUrl, key, ...options }) };
}

/** The error of a call that must fail. */
async function errorOf(call: PromiseLike<unknown>): Promise<unknown> {
  return call.then(
    () => expect.fail("the call succeeded"),
    (error: unknown) => error,
  );
}

/** A server in front of the service, or instead of it. */
async function openServer(respond: RequestListener): Promise<string> {
  const server = createServer(respond).listen(0, "127.0.0.1");
  await once(server, "listening");
  onTestFinished(() => {
    server.closeAllConnections();
    server.close();
  });
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
}

describe("the operations of a client", () => {
  it("are those of the HTTP interface, at the paths of version 2", () => {
    const paths = rpcs
      .flatMap(({ routes }) => routes.map(([, path]) => path))
      .filter((path) => path.startsWith("/v2/"));
    const offered = Object.entries(operator).flatMap(([group, methods]) =>
      Object.keys(methods).map((name) => `/v2/${group}.${name}`),
    );
    expect(offered.sort()).toEqual(paths.sort());
  });

  it("take and return plain objects that JSON can print", async () => {
    const { client } = await openClient();
    const expires = Date.now() + 3_600_000;
    const { key, keyId } = await client.keys.createKey({
      externalId: "user_1",
      meta: { plan: "pro" },
      expires: new Date(expires),
      ratelimits: [{ name: "requests", limit: 10, duration: 60_000, autoApply: true }],
      credits: { remaining: 5, refill: { interval: "daily", amount: 5 } },
    });
    const result = await client.keys.verifyKey({ key, credits: { cost: 2 } });
    expect(result).toMatchObject({
      ...{ valid: true, code: "VALID", keyId, expires, credits: 3, meta: { plan: "pro" } },
      identity: { externalId: "user_1" },
      ratelimits: [{ name: "requests", remaining: 9, reset: expect.any(Number) }],
    });
    expect(JSON.parse(JSON.stringify(result))).toEqual(result);
    const changed = await client.keys.updateKey({ keyId, expires: expires + 1, externalId: null, credits: null });
    expect(changed).toMatchObject({ keyId, expires: expires + 1 });
    expect(Object.keys(changed)).not.toEqual(expect.arrayContaining(["identity"]));
    expect(await client.keys.updateKey({ keyId, expires: null })).not.toHaveProperty("expires");
  });

  it("take a list where the HTTP interface takes one", async () => {
    const { client } = await openClient();
    const limit = { namespace: "email.send", identifier: "user_1", limit: 10, duration: 60_000 };
    const { passed, limits } = await client.ratelimit.multiLimit([limit, { ...limit, namespace: "sms.send" }]);
    expect({ passed, remaining: limits.map(({ remaining }) => remaining) }).toEqual({
      passed: true,
      remaining: [9, 9],
    });
  });

  it("refuse invalid dates and numbers, which JSON would turn into null: the key would never expire", async () => {
    const { client } = await openClient();
    const error = await errorOf(client.keys.createKey({ expires: new Date("no date") }));
    expect(error).toEqual(new TypeError("expires must be a valid date."));
    const notFinite = await errorOf(client.keys.createKey({ expires: Number.NaN }));
    expect(notFinite).toEqual(new TypeError("expires must be a valid number."));
  });

  it("have types that refuse what the service refuses", () => {
    const { keys, workspaces } = operator;
    // @ts-expect-error a list of texts
    void (() => keys.createKey({ permissions: "documents.read" }));
    // @ts-expect-error a required field
    void (() => keys.verifyKey({}));
    // @ts-expect-error an unknown field
    void (() => keys.createKey({ owner: "user_1" }));
    // @ts-expect-error an unknown reason
    void (() => workspaces.disableWorkspace({ workspaceId: "ws_1", reason: "UNPAID" }));
    // @ts-expect-error a boolean cannot be cleared
    void (() => keys.updateKey({ keyId: "key_1", enabled: null }));
    expectTypeOf(keys.getKey).returns.resolves.toEqualTypeOf<Key>();
    expectTypeOf<Awaited<ReturnType<typeof keys.listKeys>>>().toEqualTypeOf<Page<Key>>();
  });
});

describe("a list", () => {
  it("is iterated over all of its pages, and awaited for one of them", async () => {
    const { client } = await openClient();
    for (const name of ["a", "b", "c", "d", "e"]) await client.apis.createApi({ name });
    const names: string[] = [];
    for await (const { name } of client.apis.listApis({ limit: 2 })) names.push(name);
    expect(names).toEqual(["a", "b", "c", "d", "e"]);
    const first = await client.apis.listApis({ limit: 2 });
    expect(first).toMatchObject({ data: [{ name: "a" }, { name: "b" }], pagination: { hasMore: true } });
    const { cursor } = first.pagination;
    const rest = await client.apis.listApis({ limit: 3, cursor });
    expect(rest).toMatchObject({ data: [{ name: "c" }, { name: "d" }, { name: "e" }], pagination: { hasMore: false } });
  });

  it("sends nothing before it is used, and one request for each page", async () => {
    const { client, key } = await openClient();
    for (const name of ["a", "b", "c"]) await client.apis.createApi({ name });
    const sent: unknown[] = [];
    const counting = createClient({
      ...{ url: app.httpUrl, key },
      fetch: (input, init) => {
        sent.push(input);
        return fetch(input, init);
      },
    });
    const list = counting.apis.listApis({ limit: 2 });
    expect(sent).toHaveLength(0);
    await list;
    await list;
    for await (const _ of list);
    expect(sent).toHaveLength(2);
    const stopped = counting.apis.listApis({ limit: 1 });
    for await (const _ of stopped) break;
    expect(sent).toHaveLength(3);
  });

  it("throws the error of the page that failed", async () => {
    const { client } = await openClient();
    const consume = async () => {
      for await (const _ of client.apis.listApis({ cursor: "not a cursor" }));
    };
    expect(isLatchkeyError(await errorOf(consume()), "invalid_input")).toBe(true);
    expect(isLatchkeyError(await client.apis.listApis({ limit: 0 }).catch((error: unknown) => error))).toBe(true);
  });
});

describe("the errors of a client", () => {
  it("have the code, the status and the request id, and not the key", async () => {
    const { key, workspaceId } = await operator.workspaces.createWorkspace({ name: "Acme" });
    await operator.workspaces.disableWorkspace({ workspaceId, reason: "UNPAID_BILLING" });
    const error = await errorOf(createClient({ url: app.httpUrl, key }).keys.listKeys());
    if (!isLatchkeyError(error, "workspace_disabled")) return expect.fail(inspect(error));
    expect(error).toMatchObject({
      name: "LatchkeyError",
      message: "The workspace tied to this API key is disabled.",
      code: "workspace_disabled",
      type: "authorization/workspace_disabled",
      status: 403,
      requestId: expect.stringMatching(/^req_\w{26}$/),
      fieldErrors: [],
    });
    expectTypeOf(error).toEqualTypeOf<LatchkeyError<"workspace_disabled">>();
    expect(inspect(error, { depth: Number.POSITIVE_INFINITY, showHidden: true })).not.toContain(key);
  });

  it("have the invalid fields", async () => {
    const { client } = await openClient();
    const error = await errorOf(client.keys.createKey({ prefix: "not a prefix" }));
    if (!isLatchkeyError(error, "invalid_input")) return expect.fail(inspect(error));
    expect(error.fieldErrors).toEqual([{ location: "prefix", message: expect.stringContaining("letters") }]);
  });

  it("distinguish an unknown credential from an unknown key", async () => {
    const { client } = await openClient();
    const { key: deleted, keyId } = await client.keys.createKey();
    await client.keys.deleteKey({ keyId });
    const data = await errorOf(client.keys.getKey({ keyId }));
    const authentication = await errorOf(createClient({ url: app.httpUrl, key: deleted }).keys.listKeys());
    expect(isLatchkeyError(data, "key_not_found") && isLatchkeyError(authentication, "key_not_found")).toBe(true);
    expect(isLatchkeyError(data, "data/key_not_found")).toBe(true);
    expect(isLatchkeyError(authentication, "data/key_not_found")).toBe(false);
  });

  it("say that there was no response, and why", async () => {
    const unreachable = createClient({ url: "http://127.0.0.1:1", key: "lk_any" });
    const error = await errorOf(unreachable.keys.verifyKey({ key: "lk_any" }));
    expect(error).toBeInstanceOf(NoResponseError);
    expect(error).toMatchObject({ code: "unreachable", message: expect.stringContaining("cannot be reached") });
    expect(isLatchkeyError(error)).toBe(false);
    const silent = createClient({ url: await openServer(() => {}), key: "lk_any", timeoutMs: 100 });
    expect(await errorOf(silent.keys.listKeys())).toMatchObject({ code: "timeout" });
    const page = await openServer((_, response) => void response.writeHead(502).end("<html>Bad gateway</html>"));
    const proxied = createClient({ url: page, key: "lk_any" });
    expect(await errorOf(proxied.keys.listKeys())).toMatchObject({ code: "invalid_response" });
  });

  it("are the reason of the signal that aborted the call", async () => {
    const { client } = await openClient();
    const reason = new Error("not needed any more");
    expect(await errorOf(client.keys.listKeys({}, { signal: AbortSignal.abort(reason) }))).toBe(reason);
    const silent = createClient({ url: await openServer(() => {}), key: "lk_any" });
    const controller = new AbortController();
    const call = errorOf(silent.keys.listKeys({}, { signal: controller.signal }));
    controller.abort(reason);
    expect(await call).toBe(reason);
  });

  it("do not contain an invalid key", () => {
    for (const key of ["", "lk_secret\n", "lk_se cret", "lk_secrét"]) {
      const create = () => createClient({ url: app.httpUrl, key });
      expect(create).toThrow(TypeError);
      expect(create).not.toThrow(/lk_/);
    }
    expect(() => createClient({ url: "127.0.0.1:8080", key: "lk_any" })).toThrow("The url must be an HTTP address");
  });

  it("a secret in a request does not follow a redirect to another host", async () => {
    let followed = 0;
    const other = await openServer((_, response) => {
      followed++;
      response.end("{}");
    });
    const url = await openServer((_, response) => void response.writeHead(307, { location: other }).end());
    const client = createClient({ url, key: "lk_any" });
    expect(await errorOf(client.keys.verifyKey({ key: "lk_secret" }))).toMatchObject({ code: "invalid_response" });
    expect(followed).toBe(0);
  });
});

describe("retries", () => {
  /** A server that loses the first responses of the service: each call is performed, and its connection is cut. */
  async function openLossyServer(lost: number) {
    const state = { requests: 0 };
    const url = await openServer(async (request, response) => {
      const body = await new Response(request as unknown as ReadableStream).text();
      const headers = Object.entries(request.headersDistinct).map(([name, [value = ""] = []]): [string, string] => [
        name,
        value,
      ]);
      const kept = headers.filter(([name]) => !["host", "connection", "content-length"].includes(name));
      const answer = await fetch(app.httpUrl + request.url, { method: "POST", headers: kept, body });
      const text = await answer.text();
      if (state.requests++ < lost) request.socket.destroy();
      else response.writeHead(answer.status, { "content-type": "application/json" }).end(text);
    });
    return { url, state };
  }

  it("of a create make one change, because they have the same idempotency key", async () => {
    const { client, key } = await openClient();
    const { url, state } = await openLossyServer(2);
    const { apiId } = await createClient({ url, key }).apis.createApi({ name: "payments" });
    expect(state.requests).toBe(3);
    const { data } = await client.apis.listApis();
    expect(data.map(({ id }) => id)).toEqual([apiId]);
  });

  it("repeat reads, but no change without an idempotency key", async () => {
    const { client, key } = await openClient();
    const { keyId } = await client.keys.createKey({ name: "ci" });
    const reading = await openLossyServer(1);
    expect(await createClient({ url: reading.url, key }).keys.getKey({ keyId })).toMatchObject({ name: "ci" });
    const changing = await openLossyServer(1);
    const error = await errorOf(createClient({ url: changing.url, key }).keys.deleteKey({ keyId }));
    expect(error).toMatchObject({ code: "unreachable" });
    expect(changing.state.requests).toBe(1);
  });

  it("end after maxRetries", async () => {
    const { key } = await openClient();
    const { url, state } = await openLossyServer(Number.POSITIVE_INFINITY);
    const error = await errorOf(createClient({ url, key, maxRetries: 1 }).keys.listKeys());
    expect(error).toMatchObject({ code: "unreachable" });
    expect(state.requests).toBe(2);
  });

  it("with an idempotency key of one's own return the first response", async () => {
    const { client } = await openClient();
    const idempotencyKey = crypto.randomUUID();
    const first = await client.keys.createKey({ name: "ci" }, { idempotencyKey });
    expect(await client.keys.createKey({ name: "ci" }, { idempotencyKey })).toEqual(first);
    const headers = { "Idempotency-Key": idempotencyKey };
    expect(await client.keys.createKey({ name: "ci" }, { headers })).toEqual(first);
    const error = await errorOf(client.keys.createKey({ name: "other" }, { idempotencyKey }));
    expect(isLatchkeyError(error, "idempotency_conflict")).toBe(true);
    await expect(client.keys.createKey({}, { idempotencyKey: "clé" })).rejects.toThrow("must be printable ASCII");
  });

  const unavailable = JSON.stringify({
    meta: { requestId: "req_1" },
    error: { detail: "Later.", status: 503, title: "", type: "http://any/service/application/service_unavailable" },
  });

  it("are not awaited if the service says a time after the timeout", async () => {
    let requests = 0;
    const url = await openServer((_, response) => {
      requests++;
      response.writeHead(503, { "retry-after": "60" }).end(unavailable);
    });
    const error = await errorOf(createClient({ url, key: "lk_any" }).keys.listKeys());
    expect(error).toMatchObject({ code: "service_unavailable", retryAfterMs: 60_000 });
    expect(requests).toBe(1);
  });

  it("wait as long as the service says", async () => {
    let requests = 0;
    const url = await openServer((_, response) => {
      if (requests++ === 0) return response.writeHead(503, { "retry-after": "1" }).end(unavailable);
      return response.end(JSON.stringify({ meta: {}, data: [], pagination: { hasMore: false } }));
    });
    const begunAt = performance.now();
    expect(await createClient({ url, key: "lk_any" }).keys.listKeys()).toMatchObject({ data: [] });
    expect(performance.now() - begunAt).toBeGreaterThan(950);
    expect(requests).toBe(2);
  });
});

it("the headers of a response have the request id", async () => {
  const { client } = await openClient();
  let requestId: string | null = null;
  const onHeaders = (headers: Headers) => {
    requestId = headers.get("x-request-id");
  };
  await client.keys.listKeys({}, { onHeaders });
  expect(requestId).toMatch(/^req_/);
  const failing = () => {
    throw new Error("of the caller");
  };
  expect(await errorOf(client.keys.listKeys({}, { onHeaders: failing }))).toEqual(new Error("of the caller"));
});
