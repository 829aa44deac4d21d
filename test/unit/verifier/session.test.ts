import { createHash } from "node:crypto";
import { create, type MessageInitShape } from "@bufbuild/protobuf";
import { beforeEach, describe, expect, it } from "vitest";
import { VerificationCode } from "../../../gen/latchkey/v1/keys_service_pb.js";
import { DelegateResponseSchema } from "../../../gen/latchkey/v1/verifier_service_pb.js";
import type { KeyState, Uses } from "../../../src/verifier/key-states.js";
import { createSession, type Request, type Session } from "../../../src/verifier/session.js";
import { createClocks } from "./clocks.js";

let clocks: ReturnType<typeof createClocks>;
let sent: Request[];
let grants: number;
let jumps: number;
let invalidated: string[];
let used: Set<Uses>;
let session: Session;

beforeEach(() => {
  clocks = createClocks();
  used = new Set();
  sent = [];
  grants = 0;
  jumps = 0;
  invalidated = [];
  session = openSession();
});

/** The session of another stream of the same connection. */
function openSession(): Session {
  return createSession({
    clock: clocks,
    maxBytes: 2 ** 20,
    used,
    send: (request) => void sent.push(request),
    onGrant: () => {
      grants += 1;
    },
    onInvalidated: (hashes) => void invalidated.push(...hashes),
    onClockJump: () => {
      jumps += 1;
    },
  });
}

const receive = (message: MessageInitShape<typeof DelegateResponseSchema>["message"] & object) =>
  session.receive(create(DelegateResponseSchema, { message }));

function grantFor(remainingMs = 250): void {
  session.ping();
  const last = sent.at(-1);
  receive({ case: "grant", value: { ping: last?.case === "ping" ? Number(last.value.number) : 0, remainingMs } });
}

const hashOf = (digit: string) => digit.repeat(64);

/** Requests the state of a key, and returns the id of the request. */
function request(hash: string): number {
  void session.resolve(hash);
  const last = sent.at(-1);
  return last?.case === "resolve" ? Number(last.value.id) : -1;
}

function respond(id: number, keyId: string, validForMs?: bigint): void {
  const result = { valid: true, code: VerificationCode.VALID, keyId };
  const value = { result, dependsOn: [keyId], ...(validForMs !== undefined && { validForMs }) };
  receive({ case: "key", value: { id, result: { case: "cached", value } } });
}

function cache(hash: string, keyId: string, validForMs?: bigint): void {
  respond(request(hash), keyId, validForMs);
}

it("whether the workspace may have imported keys is what the last grant says; before one, it may", () => {
  expect(session.mayHaveImports).toBe(true);
  for (const mayHaveImports of [false, true]) {
    session.ping();
    const last = sent.at(-1);
    const ping = last?.case === "ping" ? Number(last.value.number) : 0;
    receive({ case: "grant", value: { ping, remainingMs: 250, mayHaveImports } });
    expect(session.mayHaveImports).toBe(mayHaveImports);
  }
  receive({ case: "grant", value: { ping: 999, remainingMs: 250, mayHaveImports: false } }); // of no ping that was sent
  expect(session.mayHaveImports).toBe(true);
});

describe("a key state is used", () => {
  it("only with a grant, and only as long as it lasts", () => {
    cache(hashOf("a"), "key_a");
    expect(session.find(hashOf("a"))).toBeUndefined();
    grantFor(250);
    expect(session.find(hashOf("a"))?.result).toMatchObject({ keyId: "key_a" });
    clocks.pass(243);
    expect(session.find(hashOf("a"))).toBeUndefined();
    grantFor(250);
    expect(session.find(hashOf("a"))).toBeDefined();
  });

  it("not after it was invalidated, before or after the next grant", () => {
    grantFor();
    cache(hashOf("a"), "key_a");
    cache(hashOf("b"), "key_b");
    receive({ case: "invalidate", value: { ids: ["key_a"] } });
    expect(session.find(hashOf("a"))).toBeUndefined();
    expect(session.find(hashOf("b"))).toBeDefined();
    grantFor();
    expect(session.find(hashOf("a"))).toBeUndefined();
  });

  it("not after five sixths of the time to its expiry", () => {
    grantFor(1_000);
    cache(hashOf("a"), "key_a", 60n);
    clocks.pass(49);
    expect(session.find(hashOf("a"))).toBeDefined();
    clocks.pass(1);
    expect(session.find(hashOf("a"))).toBeUndefined();
    expect(session.cachedKeys).toBe(0);
  });

  it("until an expiry that is counted from the request and not from the response", () => {
    grantFor(1_000);
    const id = request(hashOf("a"));
    clocks.pass(100);
    respond(id, "key_a", 60n);
    expect(session.find(hashOf("a"))).toBeUndefined();
  });

  it("not after the machine was suspended, whether it is noticed by a verification or by a ping", () => {
    grantFor();
    cache(hashOf("a"), "key_a", 60_000n);
    clocks.jump(120_000);
    grantFor();
    expect(session.find(hashOf("a"))).toBeUndefined();
    expect(jumps).toBe(1);
  });

  it("not after the stream has ended", () => {
    grantFor();
    cache(hashOf("a"), "key_a");
    session.close();
    expect(session.find(hashOf("a"))).toBeUndefined();
    grantFor();
    cache(hashOf("b"), "key_b");
    expect(session.isGranted()).toBe(false);
    expect(session.find(hashOf("b"))).toBeUndefined();
    expect(session.cachedKeys).toBe(0);
  });
});

describe("invalidateAll", () => {
  it("removes all states, keeps the grant, and settles requests that will not be answered", async () => {
    grantFor();
    cache(hashOf("a"), "key_a");
    const resolution = session.resolve(hashOf("b"));
    receive({ case: "invalidateAll", value: {} });
    expect(session.find(hashOf("a"))).toBeUndefined();
    expect(await resolution).toBe("unresolved");
    expect(session.isGranted()).toBe(true);
  });

  it("makes a response to an earlier request unusable", () => {
    grantFor();
    const id = request(hashOf("a"));
    receive({ case: "invalidateAll", value: {} });
    respond(id, "key_a");
    expect(session.find(hashOf("a"))).toBeUndefined();
  });
});

describe("a request for a key", () => {
  it("is shared by concurrent calls", async () => {
    const first = session.resolve(hashOf("a"));
    const second = session.resolve(hashOf("a"));
    expect(sent).toHaveLength(1);
    respond(1, "key_a");
    expect(await Promise.all([first, second])).toEqual(["cached", "cached"]);
    expect(session.isResolving(hashOf("a"))).toBe(false);
  });

  it("that finds no key caches nothing", async () => {
    grantFor();
    const resolution = session.resolve(hashOf("a"));
    receive({ case: "key", value: { id: 1, result: { case: "notFound", value: {} } } });
    expect(await resolution).toBe("not found");
    expect(session.cachedKeys).toBe(0);
  });

  it("that was abandoned is settled, and its response is ignored", async () => {
    grantFor();
    const resolution = session.resolve(hashOf("a"));
    session.abandon(hashOf("a"));
    expect(await resolution).toBe("unresolved");
    respond(1, "key_a");
    expect(session.find(hashOf("a"))).toBeUndefined();
  });

  it("is not sent while a thousand others have no response", async () => {
    for (let key = 0; key < 1_000; key++) void session.resolve(`hash ${key}`);
    expect(await session.resolve(hashOf("a"))).toBe("unresolved");
    expect(sent).toHaveLength(1_000);
  });

  it("is settled when the stream ends, and no further one is sent", async () => {
    const resolution = session.resolve(hashOf("a"));
    session.close();
    expect(await resolution).toBe("unresolved");
    expect(await session.resolve(hashOf("b"))).toBe("unresolved");
    expect(sent).toHaveLength(1);
  });
});

it("a message that this version does not know ends the session", () => {
  expect(() => session.receive(create(DelegateResponseSchema))).toThrow("does not know");
});

it("a grant for no remembered ping gives no right", () => {
  receive({ case: "grant", value: { ping: 7, remainingMs: 10_000 } });
  expect(grants).toBe(0);
  expect(session.isGranted()).toBe(false);
});

it.each(["a secret", "schlüssel", "\ud800"])(
  "the hash of %j is its SHA-256, before and after it was used",
  (secret) => {
    const expected = createHash("sha256").update(secret).digest("binary");
    grantFor(10_000);
    cache(expected, "key_a");
    for (const then of [() => {}, () => session.reportUses(), () => session.close()]) {
      expect(session.hashOf(secret)).toBe(expected);
      session.recordUse(secret, session.find(expected) as KeyState, "VALID");
      expect(session.hashOf(secret)).toBe(expected);
      then();
      expect(session.hashOf(secret)).toBe(expected);
    }
  },
);

describe("reports", () => {
  const reports = () => sent.flatMap((message) => (message.case === "uses" ? [message.value.keys ?? []] : []));

  it("have the count of each code, and the time since the last use", () => {
    grantFor(10_000);
    cache(hashOf("a"), "key_a");
    const state = session.find(hashOf("a"));
    if (state === undefined) return expect.fail("not cached");
    session.recordUse("a secret", state, "VALID");
    session.recordUse("a secret", state, "VALID");
    session.recordUse("a secret", state, "INSUFFICIENT_PERMISSIONS");
    clocks.pass(40);
    session.reportUses();
    expect(reports().flat()).toEqual([
      expect.objectContaining({ code: VerificationCode.VALID, count: 2, lastUsedMsAgo: 40 }),
      expect.objectContaining({ code: VerificationCode.INSUFFICIENT_PERMISSIONS, count: 1 }),
    ]);
    session.reportUses();
    expect(reports()).toHaveLength(1);
  });

  /** Counts a verification of the key. */
  const use = (hash: string) => session.recordUse(`secret of ${hash}`, session.find(hash) as KeyState, "VALID");

  it("have the uses of a stream that has ended, once, and do not keep its secrets", () => {
    grantFor(10_000);
    cache(hashOf("a"), "key_a");
    use(hashOf("a"));
    use(hashOf("a"));
    const ended = session;
    ended.close();
    ended.reportUses();
    expect(reports()).toEqual([]);
    expect([...used].map(({ secret }) => secret)).toEqual([undefined]);

    session = openSession();
    grantFor(10_000);
    cache(hashOf("a"), "key_a");
    use(hashOf("a"));
    clocks.pass(40);
    session.reportUses();
    const sha256 = Buffer.from(hashOf("a"), "binary");
    expect(reports().flat()).toEqual([
      expect.objectContaining({ sha256, code: VerificationCode.VALID, count: 2, lastUsedMsAgo: 40 }),
      expect.objectContaining({ sha256, code: VerificationCode.VALID, count: 1, lastUsedMsAgo: 40 }),
    ]);
    session.reportUses();
    expect(reports()).toHaveLength(1);
  });

  it("do not have the uses from before a clock jump, because their age is not known", () => {
    grantFor(10_000);
    cache(hashOf("a"), "key_a");
    use(hashOf("a"));
    clocks.jump(120_000);
    expect(session.isGranted()).toBe(false);
    session = openSession();
    session.reportUses();
    expect(reports()).toEqual([]);
  });

  it("have at most 500 entries, are sent early if many keys are used, and do not keep removed states", () => {
    grantFor(10_000);
    for (let key = 0; key < 20_000; key++) {
      const hash = key.toString(16).padStart(64, "0");
      cache(hash, `key_${key}`);
      const state = session.find(hash);
      if (state !== undefined) session.recordUse(`secret ${key}`, state, "VALID");
    }
    expect(session.cachedKeys).toBeLessThan(2_000);
    expect(reports().map((keys) => keys.length)).toEqual([500]);
    session.reportUses(100);
    expect(reports().at(-1)).toHaveLength(100);
    session.reportUses();
    expect(reports().map((keys) => keys.length)).toEqual([500, 100, ...Array.from({ length: 38 }, () => 500), 400]);
    expect(
      new Set(reports().flatMap((keys) => keys.map(({ sha256 }) => Buffer.from(sha256 ?? []).toString("hex")))).size,
    ).toBe(20_000);
    expect(session.usedKeys).toBe(0);
  });
});

describe("states in use that are invalidated", () => {
  const use = (hash: string) => session.recordUse("a secret", session.find(hash) as KeyState, "VALID");
  const invalidate = (...ids: string[]) => receive({ case: "invalidate", value: { ids } });

  it("are requested again at once", () => {
    grantFor();
    cache(hashOf("a"), "key_a");
    cache(hashOf("b"), "key_b");
    use(hashOf("a"));
    invalidate("key_a", "key_b");
    expect(invalidated).toEqual([hashOf("a")]);
  });

  it("are not, if they have not been used for some time", () => {
    grantFor();
    cache(hashOf("a"), "key_a");
    use(hashOf("a"));
    clocks.pass(60_000);
    invalidate("key_a");
    expect(invalidated).toEqual([]);
  });

  it("are requested in a bounded number, however many keys one change invalidates", () => {
    grantFor();
    for (let number = 0; number < 500; number++) {
      const hash = number.toString(16).padStart(64, "0");
      cache(hash, "key_a");
      use(hash);
    }
    invalidate("key_a");
    expect(session.cachedKeys).toBe(0);
    expect(invalidated).toHaveLength(100);
  });
});
