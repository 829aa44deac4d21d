import { createHash, randomBytes } from "node:crypto";
import { once } from "node:events";
import { connect } from "node:http2";
import { setTimeout as sleep } from "node:timers/promises";
import { create, fromBinary, toBinary } from "@bufbuild/protobuf";
import { Code } from "@connectrpc/connect";
import { afterAll, beforeAll, describe, expect, it, onTestFinished, vi } from "vitest";
import { VerificationCode } from "../../../gen/latchkey/v1/keys_service_pb.js";
import {
  DelegateRequestSchema,
  type DelegateResponse,
  DelegateResponseSchema,
} from "../../../gen/latchkey/v1/verifier_service_pb.js";
import { createLog } from "../../../src/observe/log.js";
import { callHeaders, grpcFrame } from "../../support/clients/grpc-streams.js";
import { createWorkspace } from "../../support/clients/http-requests.js";
import { redisInUse } from "../../support/clients/verify-calls.js";
import { operatorKey } from "../../support/harness.js";
import { readSamples, total } from "../../support/metric-samples.js";
import { openScene, openStream, openTestVerifier, type Scene, verifyLocally } from "../../support/verifier-scene.js";

const delegate = "/latchkey.v1.VerifierService/Delegate";
const lines: { method?: string; code?: string; workspaceId?: string; durationMs?: number }[] = [];
const log = createLog("info", { destination: { write: (line) => void lines.push(JSON.parse(line)) } });

let scene: Scene;
beforeAll(async () => {
  scene = await openScene(1, { log });
});
afterAll(() => scene.close());

const hashOf = (secret: string) => createHash("sha256").update(secret).digest();
const open = (key = scene.caller.key) => openStream(scene.app.grpcAddress, key);
const metric = async (name: string, labels = {}) => total(await readSamples(scene.app), `latchkey_${name}`, labels);
const loggedStreams = () => lines.filter(({ method }) => method === delegate);

/** Opens a stream and waits for its first grant. */
async function openGranted(key?: string) {
  const stream = open(key);
  stream.send({ case: "ping", value: { number: 1 } });
  await stream.next("grant");
  return stream;
}

describe("a stream is refused", () => {
  it.each([
    ["without a valid credential", async () => "lk_wrong", "malformed", Code.Unauthenticated],
    ["for the operator", async () => operatorKey, "key_required", Code.PermissionDenied],
    [
      "without the scope keys.verify",
      async () => (await scene.createKey({ scopes: ["keys.read"] })).key,
      "insufficient_permissions",
      Code.PermissionDenied,
    ],
  ])("%s", async (_why, key, code, status) => {
    const stream = open(await key());
    stream.send({ case: "ping", value: { number: 1 } });
    const error = await stream.ended;
    expect(error).toMatchObject({ status });
    if (code !== "key_required") expect(error).toMatchObject({ code });
    expect(stream.received).toEqual([]);
  });
});

describe("a grant", () => {
  it("answers the highest ping, for no longer than the lease", async () => {
    const stream = open();
    for (const number of [1, 2, 5]) stream.send({ case: "ping", value: { number } });
    const { remainingMs } = await stream.next("grant", ({ ping }) => ping === 5);
    expect(remainingMs).toBeGreaterThan(0);
    expect(remainingMs).toBeLessThanOrEqual(500);
  });

  it("is no longer than the caller's own time", async () => {
    const { key } = await scene.createKey({ scopes: ["keys.verify"], expires: Date.now() + 2_000 });
    const stream = await openGranted(key);
    let number = 1;
    while (!(await Promise.race([stream.ended, sleep(20, "open")]))) break;
    const pinging = setInterval(() => stream.send({ case: "ping", value: { number: ++number } }), 20);
    const error = await stream.ended;
    clearInterval(pinging);
    expect(error).toMatchObject({ code: "key_expired" });
    const grants = stream.received.flatMap((message) => (message.case === "grant" ? [message.value.remainingMs] : []));
    expect(Math.min(...grants)).toBeLessThan(250);
  });
});

it("messages that arrive before the caller is admitted are answered", async () => {
  const cold = await scene.createKey({ scopes: ["keys.verify"] }); // not cached, so its admission takes a lookup
  const stream = open(cold.key);
  stream.send({ case: "ping", value: { number: 1 } });
  stream.send({ case: "resolve", value: { id: 7, sha256: hashOf(cold.key) } });
  await stream.next("grant", ({ ping }) => ping === 1);
  expect((await stream.next("key", ({ id }) => id === 7)).result.case).toBe("cached");
});

describe("a key is resolved", () => {
  it("with its rows, its time to expiry and its result; one of another workspace is not found", async () => {
    const stream = await openGranted();
    const { key, keyId } = await scene.createKey({ expires: Date.now() + 60_000, externalId: "user_9" });
    const foreign = await createWorkspace(scene.app.httpUrl);
    const secrets = [key, foreign.key, "unknown"];
    for (const [id, secret] of secrets.entries())
      stream.send({ case: "resolve", value: { id, sha256: hashOf(secret) } });
    const [own, other, unknown] = await Promise.all(
      secrets.map((_, id) => stream.next("key", (found) => found.id === id)),
    );
    expect(own?.result).toMatchObject({
      case: "cached",
      value: { result: { valid: true, keyId }, dependsOn: [keyId, expect.stringMatching(/^id_/)] },
    });
    const validForMs = own?.result.case === "cached" ? Number(own.result.value.validForMs) : Number.NaN;
    expect(validForMs).toBeGreaterThan(30_000);
    expect(validForMs).toBeLessThanOrEqual(60_000);
    expect([other?.result.case, unknown?.result.case]).toEqual(["notFound", "notFound"]);
  });

  it("with its data also if it is not valid", async () => {
    const stream = await openGranted();
    const { key, keyId } = await scene.createKey({ enabled: false, meta: { plan: "pro" } });
    stream.send({ case: "resolve", value: { id: 1, sha256: hashOf(key) } });
    const { result } = await stream.next("key");
    const code = VerificationCode.DISABLED;
    expect(result).toMatchObject({ value: { result: { valid: false, code, keyId, meta: { plan: "pro" } } } });
  });

  it("with the rule to call VerifyKey each time, if it has credits or rate limits that apply automatically", async () => {
    const stream = await openGranted();
    const limit = { name: "requests", limit: 10, duration: 60_000 };
    const keys: [settings: object, verifyRemotely: boolean][] = [
      [{}, false],
      [{ ratelimits: [{ ...limit, autoApply: false }] }, false],
      [{ ratelimits: [{ ...limit, autoApply: true }] }, true],
      [{ credits: { remaining: 5 } }, true],
      [{ externalId: "limited" }, true],
    ];
    const ratelimits = [{ ...limit, autoApply: true }];
    await scene.call("identities.createIdentity", { externalId: "limited", ratelimits });
    for (const [id, [settings, verifyRemotely]] of keys.entries()) {
      const { key } = await scene.createKey(settings);
      stream.send({ case: "resolve", value: { id, sha256: hashOf(key) } });
      const { result } = await stream.next("key", (found) => found.id === id);
      expect(result, JSON.stringify(settings)).toMatchObject({ case: "cached", value: { verifyRemotely } });
    }
  });
});

it("changes of the workspace are announced on each of its streams, and on no other", async () => {
  const streams = await Promise.all([openGranted(), openGranted()]);
  const foreign = await openGranted((await createWorkspace(scene.app.httpUrl)).key);
  const { keyId } = await scene.createKey();
  await scene.call("keys.updateKey", { keyId, enabled: false });
  for (const { received } of streams) {
    const ids = received.flatMap((message) => (message.case === "invalidate" ? message.value.ids : []));
    expect(ids, "announced before the change returned").toContain(keyId);
  }
  expect(JSON.stringify(foreign.received.map(({ case: kind, value }) => [kind, `${value}`]))).not.toContain(keyId);
  expect(foreign.received.flatMap((message) => (message.case === "invalidate" ? message.value.ids : []))).not.toContain(
    keyId,
  );
});

describe("a client that breaks the protocol gets an error that says so", () => {
  it.each([
    ["a ping number that does not rise", { case: "ping", value: { number: 1 } }, "ping.number"],
    ["a hash of another length", { case: "resolve", value: { id: 1, sha256: Buffer.alloc(31) } }, "resolve.sha256"],
    [
      "a report of an unknown code",
      { case: "uses", value: { keys: [{ sha256: Buffer.alloc(32), code: 0, count: 1 }] } },
      "uses.keys[0].code",
    ],
    [
      "too large a report",
      { case: "uses", value: { keys: Array.from({ length: 501 }, () => ({ sha256: Buffer.alloc(32), code: 1 })) } },
      "uses.keys",
    ],
  ] as const)("%s", async (_what, message, location) => {
    const stream = await openGranted();
    stream.send(message as Parameters<typeof stream.send>[0]);
    const error = await stream.ended;
    expect(error).toMatchObject({ code: "invalid_input", status: Code.InvalidArgument });
    expect(error.fieldErrors[0].location).toBe(location);
  });

  it("a message without a known kind", async () => {
    const stream = await openGranted();
    stream.send({ case: undefined } as never);
    expect(await stream.ended).toMatchObject({ code: "invalid_input" });
  });

  it("a message that is too large", async () => {
    const stream = await openGranted();
    const keys = Array.from({ length: 20_000 }, () => ({ sha256: Buffer.alloc(32), code: 1 }));
    stream.send({ case: "uses", value: { keys } });
    expect(await stream.ended).toMatchObject({ status: expect.any(Number) });
    await vi.waitFor(() => expect(loggedStreams().at(-1)?.code).toMatch(/payload_too_large|invalid_input/));
  });
});

it("a client that ends its stream gets OK, and the stream is logged and counted once", async () => {
  const before = loggedStreams().length;
  const counted = await metric("calls_total", { method: delegate, code: "ok" });
  const openBefore = await metric("verifier_streams");
  const stream = await openGranted();
  expect(await metric("verifier_streams")).toBe(openBefore + 1);
  stream.end();
  expect(await stream.ended).toBeUndefined();
  await vi.waitFor(() => expect(loggedStreams()).toHaveLength(before + 1));
  const { workspaceId } = scene;
  expect(loggedStreams().at(-1)).toMatchObject({ protocol: "grpc", code: "ok", workspaceId });
  expect(await metric("calls_total", { method: delegate, code: "ok" })).toBe(counted + 1);
  await expect.poll(() => metric("verifier_streams")).toBe(openBefore);
});

it("the stream of a client that disconnects is closed and logged once", async () => {
  const stream = await openGranted();
  const before = loggedStreams().length;
  const openBefore = await metric("verifier_streams");
  stream.abort();
  await vi.waitFor(() => expect(loggedStreams()).toHaveLength(before + 1));
  expect(loggedStreams().at(-1)?.code).toMatch(/^(cancelled|ok)$/); // some clients end their requests first
  await expect.poll(() => metric("verifier_streams")).toBe(openBefore - 1);
});

describe("reported uses", () => {
  const lastUsedOf = async (keyId: string) => {
    const [row] = await scene.sql<{ at: Date | null }[]>`select last_used_at as at from keys where key_id = ${keyId}`;
    return row?.at?.getTime() ?? 0;
  };

  it("become the last-used times of the keys, and are counted by code", async () => {
    const verifier = await openTestVerifier(scene);
    const { key, keyId } = await scene.createKey({ permissions: ["a"] });
    const before = await readSamples(scene.app);
    const from = Date.now() - 1;
    await verifyLocally(verifier, key);
    for (let use = 0; use < 100; use++) await verifyLocally(verifier, key, "a");
    for (let use = 0; use < 10; use++) await verifyLocally(verifier, key, "b");
    const { local } = verifier.stats;
    await verifier.close();
    const grown = async (labels = {}) =>
      (await metric("verifier_verifications_total", labels)) -
      total(before, "latchkey_verifier_verifications_total", labels);
    await expect.poll(() => grown()).toBe(local);
    expect(await grown({ code: "INSUFFICIENT_PERMISSIONS" })).toBeGreaterThanOrEqual(10);
    await expect.poll(() => lastUsedOf(keyId), { timeout: 10_000 }).toBeGreaterThanOrEqual(from);
    expect(await lastUsedOf(keyId)).toBeLessThanOrEqual(Date.now());
  });

  it("are counted in the usage of the key, by result", async () => {
    const { key, keyId } = await scene.createKey({ permissions: ["a"] });
    const stream = await openGranted();
    const { VALID, INSUFFICIENT_PERMISSIONS, NOT_FOUND } = VerificationCode;
    const keys = [
      { code: VALID, count: 100 },
      { code: INSUFFICIENT_PERMISSIONS, count: 10 },
      { code: NOT_FOUND, count: 1_000 },
    ].map((use) => ({ sha256: hashOf(key), lastUsedMsAgo: 0, ...use }));
    stream.send({ case: "uses", value: { keys } });
    const usage = async () => {
      const parts = await scene.call<Record<string, number>[]>("keys.getUsage", { keyId });
      const sum = (name: string) => parts.reduce((total, part) => total + (part[name] ?? 0), 0);
      return { total: sum("total"), valid: sum("valid"), insufficientPermissions: sum("insufficientPermissions") };
    };
    await expect.poll(usage, { timeout: 15_000 }).toEqual({ total: 110, valid: 100, insufficientPermissions: 10 });
  });

  it("are counted in the metric only for keys of the workspace", async () => {
    const { VALID, NOT_FOUND } = VerificationCode;
    const own = await scene.createKey();
    const foreign = await createWorkspace(scene.app.httpUrl);
    const stream = await openGranted();
    const before = await metric("verifier_verifications_total");
    const use = (secret: string, code = VALID, count = 4_294_967_295) => {
      return { sha256: hashOf(secret), code, count, lastUsedMsAgo: 0 };
    };
    const madeUp = Array.from({ length: 100 }, (_, index) => `made up ${index}`);
    const keys = [foreign.key, ...madeUp].map((secret) => use(secret));
    stream.send({ case: "uses", value: { keys: [...keys, use("unknown", NOT_FOUND), use(own.key, VALID, 7)] } });
    // A state is looked up after the uses, or together with them.
    const secrets = [foreign.key, ...madeUp, own.key];
    for (const [id, secret] of secrets.entries())
      stream.send({ case: "resolve", value: { id, sha256: hashOf(secret) } });
    for (const id of secrets.keys()) await stream.next("key", (found) => found.id === id);
    expect(await metric("verifier_verifications_total")).toBe(before + 7);
  });

  it("of a key of another workspace change nothing, and no time is in the future", async () => {
    const foreign = await createWorkspace(scene.app.httpUrl);
    const [row] = await scene.sql<{ keyId: string }[]>`
      select key_id as "keyId" from keys where workspace_id = ${foreign.workspaceId}`;
    const own = await scene.createKey();
    const stream = await openGranted();
    const use = (secret: string) => ({
      sha256: hashOf(secret),
      code: VerificationCode.VALID,
      count: 1,
      lastUsedMsAgo: 0,
    });
    stream.send({ case: "uses", value: { keys: [use(foreign.key), use(own.key)] } });
    await expect.poll(() => lastUsedOf(own.keyId), { timeout: 10_000 }).toBeGreaterThan(0);
    expect(await lastUsedOf(own.keyId)).toBeLessThanOrEqual(Date.now());
    expect(await lastUsedOf(row?.keyId ?? "")).toBe(0);
    const counted = await scene.sql`select from verification_counts where workspace_id = ${foreign.workspaceId}`;
    expect(counted).toHaveLength(0);
  });
});

it("lookups count against the rate limit of the workspace; beyond it the state is not returned", async () => {
  const limited = await scene.open({ rateLimit: { requests: 20, windowSeconds: 600 } });
  await redisInUse(limited); // until then, it counts in its own memory
  const workspace = await createWorkspace(scene.app.httpUrl);
  const stream = openStream(limited.grpcAddress, workspace.key);
  stream.send({ case: "ping", value: { number: 1 } });
  await stream.next("grant");
  for (let id = 0; id < 30; id++) stream.send({ case: "resolve", value: { id, sha256: hashOf(workspace.key) } });
  for (let id = 0; id < 30; id++) await stream.next("key", (found) => found.id === id);
  const results = stream.received.flatMap((message) => (message.case === "key" ? [message.value.result.case] : []));
  expect(results.filter((result) => result === "cached")).toHaveLength(19);
  expect(results.filter((result) => result === "unresolved")).toHaveLength(11);
  stream.send({ case: "ping", value: { number: 2 } });
  await stream.next("grant", ({ ping }) => ping === 2);
});

it("the lookups of a workspace are bounded over all its streams, and each request gets a response", async () => {
  const streams = await Promise.all([openGranted(), openGranted(), openGranted()]);
  for (const stream of streams) {
    for (let id = 0; id < 1_000; id++) stream.send({ case: "resolve", value: { id, sha256: randomBytes(32) } });
  }
  for (const { received } of streams) {
    const responses = () => received.filter((message) => message.case === "key").length;
    await expect.poll(responses, { timeout: 20_000 }).toBe(1_000);
  }
});

describe("a client that does not read", () => {
  /** A stream without flow control window, on which large keys are requested. */
  async function openUnread(caller: string, requests: number) {
    const { key } = await scene.createKey({ meta: { text: "x".repeat(16_000) } });
    const session = connect(`http://${scene.app.grpcAddress}`, { settings: { initialWindowSize: 0 } });
    session.on("error", () => {});
    onTestFinished(() => session.destroy());
    const stream = session.request(callHeaders(delegate, caller), { endStream: false });
    stream.on("error", () => {});
    const resolves = Array.from({ length: requests }, (_, id) => ({ id, sha256: hashOf(key) }));
    for (const value of resolves) {
      const request = create(DelegateRequestSchema, { message: { case: "resolve", value } });
      stream.write(grpcFrame(Buffer.from(toBinary(DelegateRequestSchema, request))));
    }
    return { session, stream };
  }

  it("takes a bounded memory, and is first of all informed that its states are not current", async () => {
    const { session, stream } = await openUnread(scene.caller.key, 200);
    const received: DelegateResponse["message"][] = [];
    let rest = Buffer.alloc(0);
    stream.on("data", (chunk: Buffer) => {
      rest = Buffer.concat([rest, chunk]);
      while (rest.length >= 5 && rest.length >= 5 + rest.readUInt32BE(1)) {
        const end = 5 + rest.readUInt32BE(1);
        received.push(fromBinary(DelegateResponseSchema, rest.subarray(5, end)).message);
        rest = rest.subarray(end);
      }
    });
    await sleep(1_500);
    expect(received).toEqual([]);
    expect(await metric("memory_reserved_bytes")).toBeLessThan(2 ** 20);
    session.settings({ initialWindowSize: 2 ** 20 });
    await vi.waitFor(() => expect(received.length).toBeGreaterThan(5));
    const ping = create(DelegateRequestSchema, { message: { case: "ping", value: { number: 1 } } });
    stream.write(grpcFrame(Buffer.from(toBinary(DelegateRequestSchema, ping))));
    await vi.waitFor(() => expect(received.at(-1)?.case).toBe("grant"), { timeout: 5_000 });
    const kinds = received.map((message) => message.case);
    expect(kinds.filter((kind) => kind === "key").length).toBeLessThan(100);
    expect(kinds.indexOf("invalidateAll")).toBeGreaterThan(0);
    expect(kinds.indexOf("invalidateAll")).toBeLessThan(kinds.indexOf("grant"));
  });

  it("gets no grant after its revocation, and its stream takes no memory any more after the request timeout", async () => {
    const app = await scene.open({ limits: { headersTimeoutMs: 1_000, requestTimeoutMs: 1_000 } });
    const caller = await scene.createKey({ scopes: ["keys.verify"] });
    const session = connect(`http://${app.grpcAddress}`, { settings: { initialWindowSize: 0 } });
    session.on("error", () => {});
    onTestFinished(() => session.destroy());
    const stream = session.request(callHeaders(delegate, caller.key), { endStream: false });
    stream.on("error", () => {});
    const closed = once(stream, "close");
    const ping = create(DelegateRequestSchema, { message: { case: "ping", value: { number: 1 } } });
    stream.write(grpcFrame(Buffer.from(toBinary(DelegateRequestSchema, ping))));
    await expect.poll(async () => total(await readSamples(app), "latchkey_verifier_streams")).toBe(1);
    await sleep(2_000); // an open stream has no timeout
    expect(stream.closed).toBe(false);
    await scene.call("keys.updateKey", { keyId: caller.keyId, enabled: false });
    expect(total(await readSamples(app), "latchkey_verifier_streams")).toBe(0);
    await closed;
  });
});

it("a shutdown ends streams with an error that sends clients to another replica, and refuses new ones", async () => {
  const second = await scene.open();
  const stream = openStream(second.grpcAddress, scene.caller.key);
  stream.send({ case: "ping", value: { number: 1 } });
  await stream.next("grant");
  const startedAt = performance.now();
  const closing = second.close();
  expect(await stream.ended).toMatchObject({
    code: "service_unavailable",
    status: Code.Unavailable,
    message: expect.stringContaining("another replica"),
  });
  await closing;
  expect(performance.now() - startedAt, "the shutdown does not wait for streams").toBeLessThan(9_000);
});
