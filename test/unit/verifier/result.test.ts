import { create } from "@bufbuild/protobuf";
import { describe, expect, it } from "vitest";
import { VerificationCode, VerifyKeyResponseSchema } from "../../../gen/latchkey/v1/keys_service_pb.js";
import { toVerifyResult } from "../../../src/verifier/result.js";

const { VALID, UNSPECIFIED, DISABLED } = VerificationCode;
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
    expect(toVerifyResult(response(fields))).toEqual({ valid: false, code });
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
