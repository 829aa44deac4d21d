import { create, type MessageInitShape } from "@bufbuild/protobuf";
import { beforeEach, describe, expect, it } from "vitest";
import { VerificationCode, VerifyKeyRequestSchema } from "../../../gen/latchkey/v1/keys_service_pb.js";
import type { CallContext } from "../../../src/call/context.js";
import { hashSecret } from "../../../src/keys/secret.js";
import { createVerification, type VerifyKey } from "../../../src/keys/verification.js";
import type { CheckResult, UsesToCheck } from "../../../src/limiter/counters.js";
import { CallerChanged } from "../../../src/revocation/authorized-key.js";
import type { KeyState, RateLimitSettings } from "../../../src/revocation/key-state.js";

const secret = "lk_secret";
const perMinute: RateLimitSettings = { id: "rl_1", name: "requests", limit: 3, duration: 60_000, autoApply: true };

const callerHash = "hash of the caller";

const plainKey: KeyState["key"] = {
  keyId: "key_1",
  workspaceId: "ws_1",
  name: null,
  enabled: true,
  scopes: [],
  permissions: ["documents.read"],
  apiId: null,
  roleIds: [],
  roles: [],
  ratelimits: [],
  hasCredits: false,
  meta: null,
  expiresAt: null,
  ended: false,
  identityId: null,
  externalId: "",
  identityMeta: {},
  identityRatelimits: [],
  identityCreatedAt: new Date(0),
  identityUpdatedAt: new Date(0),
};

let key: KeyState["key"];
let checked: UsesToCheck[];
let spends: number[];
let uses: [string, string, readonly string[]][];
let recorded: string[];
let result: CheckResult;
let credits: number;
/** The state of the calling key. */
let caller: KeyState;
let verifyKey: VerifyKey;

beforeEach(() => {
  key = plainKey;
  checked = [];
  spends = [];
  uses = [];
  recorded = [];
  credits = 2;
  result = { passed: true, states: [{ exceeded: false, remaining: 2, msLeft: 1_000 }], perProcess: false };
  caller = { key: plainKey, workspaceEnabled: true };
  const found = (hash: string) => {
    if (hash === callerHash) return caller;
    return hash === hashSecret(secret) ? { key, workspaceEnabled: true } : undefined;
  };
  verifyKey = createVerification({
    keyCache: {
      ensureLease: () => {},
      peek: found,
      get: async (hash) => found(hash),
      recheck: found,
      mayHaveImports: () => false,
    },
    lastUsed: { record: ({ keyId }) => void recorded.push(keyId) },
    counters: {
      async check(group) {
        checked.push(group);
        return result;
      },
    },
    credits: {
      async spend(_call, _keyId, cost, isCurrent) {
        spends.push(cost);
        if (!isCurrent()) return undefined;
        const spent = cost <= credits;
        if (spent) credits -= cost;
        return { spent, remaining: credits };
      },
    },
    usage: { count: ({ keyId }, code, tags) => void uses.push([keyId, VerificationCode[code] ?? "", tags]) },
    now: () => new Date(),
  });
});

const context = {
  caller: { kind: "key", workspaceId: "ws_1", keyId: "key_0", hash: callerHash, scopes: [], expiresAt: null },
  call: { requestId: "req_1", deadline: Number.POSITIVE_INFINITY },
} satisfies CallContext;

const verify = (request: MessageInitShape<typeof VerifyKeyRequestSchema> = {}) =>
  verifyKey(create(VerifyKeyRequestSchema, { key: secret, ...request }), context);

describe("a key without rate limits and credits", () => {
  it("is verified synchronously, and nothing is counted or spent", () => {
    const response = verify();
    expect(response).toMatchObject({ valid: true, code: VerificationCode.VALID, ratelimits: [] });
    expect(verify(), "the same message, which is encoded once").toBe(response);
    expect(Object.isFrozen(response)).toBe(true);
    expect({ checked, spends, recorded }).toEqual({ checked: [], spends: [], recorded: ["key_1", "key_1"] });
  });

  it("keeps to the limits that the request defines", async () => {
    await verify({ ratelimits: [{ name: "inline", limit: 1n, duration: 1_000n }] });
    expect(checked).toMatchObject([{ workspaceId: "ws_1", hashTag: "key_1", uses: [{ limit: 1, cost: 1 }] }]);
  });
});

describe("a verification", () => {
  const exceeded = { passed: false, states: [{ exceeded: true, remaining: 0, msLeft: 1_000 }], perProcess: false };

  it("that its state or permissions refuse is neither counted nor spent, and returns the key", async () => {
    key = { ...plainKey, ratelimits: [perMinute], hasCredits: true, name: "mine" };
    const lacking = await verify({ permissions: "documents.write" });
    expect(lacking).toMatchObject({ valid: false, code: VerificationCode.INSUFFICIENT_PERMISSIONS, name: "mine" });
    key = { ...key, enabled: false };
    expect(await verify()).toMatchObject({ valid: false, code: VerificationCode.DISABLED, keyId: "key_1" });
    expect({ checked, spends, recorded }).toEqual({ checked: [], spends: [], recorded: [] });
  });

  it("that a rate limit refuses spends no credits", async () => {
    key = { ...plainKey, ratelimits: [perMinute], hasCredits: true };
    result = exceeded;
    const response = await verify();
    expect(response).toMatchObject({ valid: false, code: VerificationCode.RATE_LIMITED, keyId: "key_1" });
    expect(response).toMatchObject({ ratelimits: [{ name: "requests", exceeded: true, remaining: 0n }] });
    expect(response.credits).toBeUndefined();
    expect({ spends, recorded }).toEqual({ spends: [], recorded: [] });
  });

  it("spends credits after its rate limits, by default one", async () => {
    key = { ...plainKey, ratelimits: [perMinute], hasCredits: true };
    const response = await verify();
    expect(response).toMatchObject({ valid: true, credits: 1n, ratelimits: [{ remaining: 2n, limit: 3n }] });
    expect(await verify({ credits: { cost: 2n } })).toMatchObject({
      valid: false,
      code: VerificationCode.USAGE_EXCEEDED,
      credits: 1n,
      keyId: "key_1",
      ratelimits: [{ exceeded: false }],
    });
    expect({ spends, recorded }).toEqual({ spends: [1, 2], recorded: ["key_1"] });
  });

  it("says that only one process has counted", async () => {
    key = { ...plainKey, ratelimits: [perMinute] };
    expect((await verify()).ratelimits?.[0]?.perProcess).toBeUndefined();
    result = { ...result, perProcess: true };
    expect((await verify()).ratelimits?.[0]?.perProcess).toBe(true);
  });

  it("is counted with its code and tags, unless the key is not found", async () => {
    key = { ...plainKey, ratelimits: [perMinute] };
    await verify({ tags: ["path=/"] });
    result = exceeded;
    await verify();
    key = { ...plainKey, enabled: false };
    await verify();
    expect(await verify({ key: "lk_unknown" })).toMatchObject({ code: VerificationCode.NOT_FOUND });
    expect(uses).toEqual([
      ["key_1", "VALID", ["path=/"]],
      ["key_1", "RATE_LIMITED", []],
      ["key_1", "DISABLED", []],
    ]);
  });

  it("is counted once against its rate limits if it begins again because its caller has changed", async () => {
    key = { ...plainKey, ratelimits: [perMinute], hasCredits: true };
    caller = { ...caller, key: { ...plainKey, scopes: ["keys.verify"] } };
    await expect(verify()).rejects.toThrow(CallerChanged);
    caller = { ...caller, key: plainKey };
    key = { ...key, ratelimits: [{ ...perMinute, name: "added meanwhile" }, perMinute] };
    const response = await verify();
    expect({ checked: checked.length, spends, uses: uses.length }).toEqual({ checked: 1, spends: [1, 1], uses: 1 });
    expect(response).toMatchObject({ valid: true, ratelimits: [{ name: "requests", remaining: 2n }] });
  });

  it("of a text with more than 512 characters is NOT_FOUND without a lookup", () => {
    expect(verify({ key: "x".repeat(513) })).toMatchObject({ valid: false, code: VerificationCode.NOT_FOUND });
  });
});
