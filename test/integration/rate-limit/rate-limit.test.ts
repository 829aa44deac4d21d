import { setTimeout as sleep } from "node:timers/promises";
import { Redis } from "ioredis";
import { afterAll, beforeAll, describe, expect, inject, it } from "vitest";
import { exitCodeOf } from "../../../src/cli/exit-codes.js";
import { createProtobufClient, isLatchkeyError } from "../../../src/client/protobuf.js";
import { createLog } from "../../../src/observe/log.js";
import { openReference } from "../../meta/openapi/reference.js";
import { succeed } from "../../support/calls.js";
import { sendRequest } from "../../support/clients/http.js";
import { createWorkspace } from "../../support/clients/http-requests.js";
import { callers, protocolNames } from "../../support/clients/rate-limit-headers.js";
import { disable, enable, redisInUse } from "../../support/clients/verify-calls.js";
import { openTestApp, operatorKey, type TestApp } from "../../support/harness.js";

const { http } = callers;

/** Long enough that no window ends within a test. */
const minutes = { requests: 4, windowSeconds: 600 };
const seconds = { requests: 2, windowSeconds: 2 };

const refused = { code: "limits/rate_limited" };

describe("with a rate limit", () => {
  let app: TestApp;
  let other: TestApp;
  let redis: Redis;
  const logged: { msg: string; workspaceId?: string }[] = [];
  const log = createLog("info", { destination: { write: (line: string) => void logged.push(JSON.parse(line)) } });

  beforeAll(async () => {
    redis = new Redis(inject("redisUrl"));
    app = await openTestApp({ rateLimit: minutes, log });
    other = await openTestApp({ rateLimit: minutes, databaseUrl: app.databaseUrl, log });
    for (const replica of [app, other]) await redisInUse(replica);
  });
  afterAll(async () => {
    redis.disconnect();
    await other.close();
    await app.close();
  });

  const policy = `"workspace";q=4;w=600`;
  const left = (remaining: number) => expect.stringMatching(new RegExp(`^"workspace";r=${remaining};t=(600|5\\d\\d)$`));

  /** A workspace that has reached its rate limit. */
  async function exhaustedWorkspace() {
    const workspace = await createWorkspace(app.httpUrl);
    for (let sent = 0; sent < minutes.requests; sent++) await http(app, workspace.key);
    return workspace;
  }

  it.each(protocolNames)(
    "responses over %s count down, and the first request above the limit is refused",
    async (protocol) => {
      const { key } = await createWorkspace(app.httpUrl);
      for (const remaining of [3, 2, 1, 0]) {
        expect(await callers[protocol](app, key)).toMatchObject({ code: "ok", policy, limit: left(remaining) });
      }
      // Twice: the second call is refused from the memory of this process.
      for (let times = 0; times < 2; times++) {
        const result = await callers[protocol](app, key);
        expect(result).toMatchObject({ ...refused, policy, limit: left(0) });
        if (protocol !== "grpc") expect(Number(result.retryAfter)).toSatisfy((wait) => wait > 500 && wait <= 600);
        if (protocol !== "http") expect(result.retryDelayMs).toSatisfy((wait) => wait > 500_000 && wait <= 600_000);
      }
    },
  );

  it("all protocols and all replicas count together", async () => {
    const { key } = await createWorkspace(app.httpUrl);
    const replicas = [app, other, app, other];
    for (const [index, protocol] of protocolNames.entries()) {
      const result = await callers[protocol](replicas[index] ?? app, key);
      expect(result).toMatchObject({ code: "ok", limit: left(3 - index) });
    }
    for (const replica of [app, other]) expect(await http(replica, key)).toMatchObject(refused);
  });

  it("all keys of a workspace count together, separately from other workspaces", async () => {
    const { key } = await createWorkspace(app.httpUrl);
    const own = { scopes: ["keys.read"] };
    const sibling = await succeed<{ key: string }>(app.httpUrl, "keys.createKey", key, own);
    expect(await http(app, sibling.key)).toMatchObject({ code: "ok", limit: left(2) });
    const { key: foreign } = await createWorkspace(app.httpUrl);
    expect(await http(app, foreign)).toMatchObject({ code: "ok", limit: left(3) });
  });

  it("exactly the allowed number of concurrent requests is served", async () => {
    const { key } = await createWorkspace(app.httpUrl);
    const calls = Array.from({ length: 20 }, (_, index) => http(index % 2 === 0 ? app : other, key));
    const codes = (await Promise.all(calls)).map(({ code }) => code);
    expect(codes.filter((code) => code === "ok")).toHaveLength(minutes.requests);
    expect(codes.filter((code) => code === refused.code)).toHaveLength(20 - minutes.requests);
  });

  it.each(protocolNames)(
    "calls of an accepted key that lack a scope or have an invalid body are counted, over %s",
    async (protocol) => {
      const { key } = await createWorkspace(app.httpUrl);
      const call = callers[protocol];
      const lacking = { code: "authorization/insufficient_permissions", policy, limit: left(3) };
      expect(await call(app, key, "listWorkspaces")).toMatchObject(lacking);
      const invalid = { code: "application/invalid_input", policy, limit: left(2) };
      expect(await call(app, key, "listKeys", { limit: 1_000 })).toMatchObject(invalid);
      const absent = { code: "data/identity_not_found", policy, limit: left(1) };
      expect(await call(app, key, "getIdentity", { externalId: "nobody" })).toMatchObject(absent);
    },
  );

  it("the rate limit is checked before the scope and the body", async () => {
    const { key } = await exhaustedWorkspace();
    expect(await http(app, key, "listWorkspaces")).toMatchObject(refused);
    expect(await http(app, key, "listKeys", { limit: 1_000 })).toMatchObject(refused);
    expect(await callers.grpc(app, key, "listWorkspaces")).toMatchObject(refused);
  });

  it("revocation is checked before the rate limit, on every replica", async () => {
    const { key, workspaceId } = await exhaustedWorkspace();
    expect(await http(app, key)).toMatchObject(refused);
    await disable(app, workspaceId);
    const disabled = { code: "authorization/workspace_disabled", policy: undefined, limit: undefined };
    for (const protocol of protocolNames) {
      for (const replica of [app, other]) expect(await callers[protocol](replica, key)).toMatchObject(disabled);
    }
    await enable(app, workspaceId);
    expect(await http(app, key)).toMatchObject(refused);
  });

  it.each(protocolNames)("the operator has no rate limit over %s, and gets no rate-limit headers", async (protocol) => {
    for (let sent = 0; sent < 2 * minutes.requests; sent++) {
      const result = await callers[protocol](app, operatorKey, "listWorkspaces");
      expect(result).toMatchObject({ code: "ok", policy: undefined, limit: undefined });
    }
  });

  it("calls with an invalid credential are not counted, and get no rate-limit headers", async () => {
    const { key } = await createWorkspace(app.httpUrl);
    const { key: disabled } = await succeed<{ key: string }>(app.httpUrl, "keys.createKey", key, { enabled: false });
    for (let sent = 0; sent < 2 * minutes.requests; sent++) {
      const result = await http(app, disabled);
      expect(result).toMatchObject({ code: "authorization/key_disabled", policy: undefined, limit: undefined });
    }
    expect(await http(app, "nonsense")).toMatchObject({ code: "authentication/malformed", limit: undefined });
    expect(await http(app, key)).toMatchObject({ code: "ok", limit: left(2) });
  });

  it("only the first refusal of a window is logged, with its workspace", async () => {
    const { workspaceId, key } = await exhaustedWorkspace();
    for (const replica of [app, other, app, other]) expect(await http(replica, key)).toMatchObject(refused);
    const lines = logged.filter((line) => line.workspaceId === workspaceId && line.msg !== "call");
    expect(lines).toMatchObject([{ msg: "rate limit of a workspace reached" }]);
  });

  it("further requests above the limit are refused without a Redis command", async () => {
    const { workspaceId, key } = await exhaustedWorkspace();
    const counted = () => redis.get(`latchkey:rate:600:${workspaceId}`);
    expect(await http(app, key)).toMatchObject(refused);
    expect(await counted()).toBe("5");
    for (const protocol of protocolNames) expect(await callers[protocol](app, key)).toMatchObject(refused);
    expect(await counted()).toBe("5");
  });

  it("responses match the OpenAPI document", async () => {
    const reference = await openReference(app.httpUrl);
    const { key } = await createWorkspace(app.httpUrl);
    for (const status of [200, 200, 200, 200, 429]) {
      const response = await sendRequest(app.httpUrl, ["POST", "/v1/keys.listKeys"], key, {});
      expect(response.status).toBe(status);
      await reference.holds(["POST", "/v1/keys.listKeys"], response);
    }
  });

  it("the client error has the retry delay, and the CLI exits with the code for unavailable", async () => {
    const { key } = await exhaustedWorkspace();
    const { keys } = createProtobufClient({ url: app.httpUrl, key });
    const error = await keys.listKeys({}).catch((error: unknown) => error);
    if (!isLatchkeyError(error, "rate_limited")) return expect.fail(String(error));
    expect(error.retryAfterMs).toSatisfy((wait) => wait > 500_000 && wait <= 600_000);
    expect(exitCodeOf(error)).toBe(7);
  });
});

it("a refused client is served after the returned retry delay, over every protocol", async () => {
  const app = await openTestApp({ rateLimit: seconds });
  try {
    await redisInUse(app);
    await Promise.all(
      protocolNames.map(async (protocol) => {
        const { key } = await createWorkspace(app.httpUrl);
        let result = await callers[protocol](app, key);
        for (let sent = 1; result.code === "ok" && sent < 100; sent++) result = await callers[protocol](app, key);
        expect(result).toMatchObject(refused);
        const waitMs = result.retryDelayMs ?? 1_000 * Number(result.retryAfter);
        expect(waitMs).toBeLessThanOrEqual(1_000 * seconds.windowSeconds);
        // Timers may fire a moment early.
        await sleep(waitMs + 5);
        expect(await callers[protocol](app, key)).toMatchObject({ code: "ok", limit: `"workspace";r=1;t=2` });
      }),
    );
  } finally {
    await app.close();
  }
});

describe("without a rate limit", () => {
  let app: TestApp;
  beforeAll(async () => {
    app = await openTestApp();
  });
  afterAll(() => app.close());

  it.each(protocolNames)("responses over %s have no rate-limit headers", async (protocol) => {
    const { key } = await createWorkspace(app.httpUrl);
    const plain = { code: "ok", policy: undefined, limit: undefined, retryAfter: undefined, retryDelayMs: undefined };
    expect(await callers[protocol](app, key)).toEqual(plain);
  });
});
