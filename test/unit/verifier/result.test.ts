import { create } from "@bufbuild/protobuf";
import { timestampFromMs } from "@bufbuild/protobuf/wkt";
import { describe, expect, it } from "vitest";
import { VerificationCode, VerifyKeyResponseSchema } from "../../../gen/latchkey/v1/keys_service_pb.js";
import { toVerifyResult, withoutPermission } from "../../../src/verifier/result.js";

const { VALID, UNSPECIFIED, DISABLED, NOT_FOUND, RATE_LIMITED, USAGE_EXCEEDED } = VerificationCode;
const response = (fields: object) => create(VerifyKeyResponseSchema, fields);

describe("a result", () => {
  it.each([
    ["valid, with another code", { valid: true, code: DISABLED, keyId: "key_1" }, "DISABLED"],
    ["the code VALID, and not valid", { valid: false, code: VALID, keyId: "key_1" }, "FORBIDDEN"],
    ["valid, without a key", { valid: true, code: VALID }, "FORBIDDEN"],
    ["valid, without a code", { valid: true, code: UNSPECIFIED, keyId: "key_1" }, "FORBIDDEN"],
    ["a code of a newer service", { valid: false, code: 99 }, "FORBIDDEN"],
    ["empty", {}, "FORBIDDEN"],
  ])("is not valid if the response is %s", (_what, fields, code) => {
    const result = toVerifyResult(response(fields));
    expect(result).toMatchObject({ valid: false, code });
    expect(Object.isFrozen(result)).toBe(true);
  });

  it("has the data of the key for every code, except for a key that does not exist", () => {
    const key = { keyId: "key_1", name: "n", permissions: ["a"], roles: ["editor"] };
    for (const [code, name] of [
      [DISABLED, "DISABLED"],
      [RATE_LIMITED, "RATE_LIMITED"],
      [USAGE_EXCEEDED, "USAGE_EXCEEDED"],
    ] as const) {
      expect(toVerifyResult(response({ code, ...key }))).toEqual({ valid: false, code: name, ...key });
    }
    expect(toVerifyResult(response({ code: NOT_FOUND }))).toEqual({ valid: false, code: "NOT_FOUND" });
  });

  it("has rate limits and credits as plain numbers and dates", () => {
    const limit = { id: "rl_1", name: "requests", limit: 10n, duration: 60_000n, autoApply: true, exceeded: true };
    const reset = timestampFromMs(1_800_000_000_123);
    const ratelimits = [
      { ...limit, remaining: 3n, reset },
      { ...limit, remaining: 0n, reset, perProcess: true },
    ];
    const result = toVerifyResult(response({ code: RATE_LIMITED, keyId: "key_1", ratelimits, credits: 5n }));
    const plain = { ...limit, limit: 10, duration: 60_000, reset: new Date(1_800_000_000_123) };
    expect(result).toMatchObject({
      ratelimits: [
        { ...plain, remaining: 3, perProcess: false },
        { ...plain, remaining: 0, perProcess: true },
      ],
      credits: 5,
    });
    expect([result.ratelimits, result.ratelimits?.[0]].every(Object.isFrozen)).toBe(true);
  });

  it("for a valid key without the permission has the data of the key", () => {
    const result = toVerifyResult(
      response({ valid: true, code: VALID, keyId: "key_1", name: "n", permissions: ["a"] }),
    );
    if (!result.valid) return expect.fail(result.code);
    const refused = withoutPermission(result);
    expect(refused).toEqual({ ...result, valid: false, code: "INSUFFICIENT_PERMISSIONS" });
    expect(Object.isFrozen(refused)).toBe(true);
  });

  it("cannot be changed, because calls share it", () => {
    const meta = { plan: { name: "pro", regions: ["eu"] } };
    const identity = { identityId: "id_1", externalId: "user", meta: { tags: ["a"] } };
    const result = toVerifyResult(
      response({ valid: true, code: VALID, keyId: "key_1", meta, identity, permissions: ["a"] }),
    );
    if (!result.valid) return expect.fail(result.code);
    const { plan } = result.meta as typeof meta;
    const frozen = [
      result,
      result.meta,
      plan,
      plan.regions,
      result.identity,
      result.identity?.meta,
      result.permissions,
    ];
    expect(frozen.map(Object.isFrozen)).toEqual(frozen.map(() => true));
  });
});
