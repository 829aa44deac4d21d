import { create, type DescMessage, type Message } from "@bufbuild/protobuf";
import { createValidator } from "@bufbuild/protovalidate";
import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { GetIdentityRequestSchema } from "../../../gen/latchkey/v1/identities_service_pb.js";
import {
  CreateKeyRequestSchema,
  GetKeyRequestSchema,
  VerifyKeyRequestSchema,
} from "../../../gen/latchkey/v1/keys_service_pb.js";
import { compileLengthRules } from "../../../src/rpc/length-rules.js";

const validator = createValidator();
const isValid = (schema: DescMessage, message: Message) => validator.validate(schema, message).kind === "valid";

/** Strings around every length limit, of characters that take one or two UTF-16 code units. */
const text = fc
  .tuple(
    fc.constantFrom("a", "é", "🔑", "a🔑"),
    fc.constantFrom(0, 1, 2, 126, 127, 128, 254, 255, 256, 500, 1000, 1001),
  )
  .map(([unit, times]) => unit.repeat(times));

const cases: [string, DescMessage, (value: string) => Record<string, unknown>][] = [
  ["verifyKey", VerifyKeyRequestSchema, (value) => ({ key: value, permissions: value })],
  ["verifyKey without permissions", VerifyKeyRequestSchema, (value) => ({ key: value })],
  ["getKey", GetKeyRequestSchema, (value) => ({ keyId: value })],
  ["getIdentity by identityId", GetIdentityRequestSchema, (value) => ({ reference: { case: "identityId", value } })],
  ["getIdentity by externalId", GetIdentityRequestSchema, (value) => ({ reference: { case: "externalId", value } })],
  ["getIdentity by identity", GetIdentityRequestSchema, (value) => ({ reference: { case: "identity", value } })],
];

describe("compiled length rules", () => {
  it.each(cases)("accept only messages that protovalidate accepts: %s", (_name, schema, membersOf) => {
    const passesLengthRules = compileLengthRules(schema);
    let accepted = 0;
    fc.assert(
      fc.property(text, (value) => {
        const message = create(schema, membersOf(value));
        if (!passesLengthRules(message)) return true;
        accepted += 1;
        return isValid(schema, message);
      }),
      { numRuns: 300 },
    );
    expect(accepted).toBeGreaterThan(20);
  });

  it("do not accept a message without a required oneof", () => {
    expect(compileLengthRules(GetIdentityRequestSchema)(create(GetIdentityRequestSchema))).toBe(false);
  });

  it("accept no message of a schema with rules other than string lengths", () => {
    const passesLengthRules = compileLengthRules(CreateKeyRequestSchema);
    expect(passesLengthRules(create(CreateKeyRequestSchema, { name: "a name" }))).toBe(false);
  });
});
