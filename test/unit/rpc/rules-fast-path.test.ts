import {
  create,
  type DescField,
  type DescMessage,
  type DescOneof,
  getOption,
  type MessageInitShape,
  ScalarType,
} from "@bufbuild/protobuf";
import { FieldMaskSchema } from "@bufbuild/protobuf/wkt";
import { createValidator } from "@bufbuild/protovalidate";
import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { field as fieldRules } from "../../../gen/buf/validate/validate_pb.js";
import { UpdateKeyRequestSchema, VerifyKeyRequestSchema } from "../../../gen/latchkey/v1/keys_service_pb.js";
import { compileFastPath } from "../../../src/rpc/rules-fast-path.js";
import { rpcs } from "../../support/rpcs.js";

const validator = createValidator();

/** Strings at the bounds of a field's lengths, of characters with one and with two UTF-16 code units. */
function strings(field: DescField): fc.Arbitrary<string> {
  const { type } = getOption(field, fieldRules);
  const { minLen = 0n, maxLen = 0n } = type.case === "string" ? type.value : {};
  const lengths = [0n, 1n, minLen - 1n, minLen, 2n * minLen, maxLen / 2n, maxLen - 1n, maxLen, maxLen + 1n];
  const counts = lengths.map(Number).filter((length) => length >= 0);
  return fc.tuple(fc.constantFrom("a", "🔑"), fc.constantFrom(...counts)).map(([text, count]) => text.repeat(count));
}

const numbers = fc.constantFrom(-1, 0, 1);

const scalars: Partial<Record<ScalarType, (field: DescField) => fc.Arbitrary<unknown>>> = {
  [ScalarType.STRING]: strings,
  [ScalarType.BOOL]: () => fc.boolean(),
  [ScalarType.INT64]: () => numbers.map(BigInt),
};

/** Masks with paths that the rules name, a part of one, and another one. */
function masks(field: DescField): fc.Arbitrary<unknown> {
  const { type } = getOption(field, fieldRules);
  const named = type.case === "fieldMask" ? type.value.in : [];
  const paths = fc.subarray([...named, "credits.other", "unknown", ""], { maxLength: 3 });
  return fc.option(
    paths.map((chosen) => ({ paths: chosen })),
    { nil: undefined },
  );
}

function values(field: DescField): fc.Arbitrary<unknown> {
  if (field.message?.typeName === FieldMaskSchema.typeName) return masks(field);
  if (field.fieldKind === "message") return fc.constantFrom(undefined, {});
  if (field.fieldKind === "map") return fc.constant({});
  const single = field.message ? fc.constant({}) : (scalars[field.scalar as ScalarType]?.(field) ?? numbers);
  if (field.fieldKind === "list") return fc.array(single, { maxLength: 2 });
  return fc.option(single, { nil: undefined });
}

function choices(oneof: DescOneof): fc.Arbitrary<unknown> {
  const set = oneof.fields.map((field) =>
    values(field).map((value) => (value === undefined ? { case: undefined } : { case: field.localName, value })),
  );
  return fc.oneof(fc.constant({ case: undefined }), ...set);
}

function messages(schema: DescMessage) {
  const fields = schema.fields.filter(({ oneof }) => oneof === undefined);
  const single = fields.map((field) => [field.localName, values(field)] as const);
  const oneofs = schema.oneofs.map((oneof) => [oneof.localName, choices(oneof)] as const);
  const members = fc.record(Object.fromEntries([...single, ...oneofs]));
  return members.map((each) => create(schema, each as MessageInitShape<DescMessage>));
}

describe("the fast path accepts only messages that protovalidate accepts, too:", () => {
  it.each(rpcs.map(({ method }) => [method.name, method.input] as const))("the request of %s", (_name, schema) => {
    const isAccepted = compileFastPath(schema);
    fc.assert(
      fc.property(messages(schema), (message) => {
        if (isAccepted(message)) expect(validator.validate(schema, message).kind).toBe("valid");
      }),
      { numRuns: 300 },
    );
  });
});

it("the fast path accepts a usual request of VerifyKey, and no request with a rule to check", () => {
  const isAccepted = compileFastPath(VerifyKeyRequestSchema);
  const accepts = (members: MessageInitShape<typeof VerifyKeyRequestSchema>) =>
    isAccepted(create(VerifyKeyRequestSchema, { key: "lk_1", ...members }));
  expect(accepts({})).toBe(true);
  expect(accepts({ permissions: "documents.read" })).toBe(true);
  expect(accepts({ permissions: "a".repeat(1_000) })).toBe(true);
  for (const refused of [
    { key: "" },
    { permissions: "" },
    { permissions: "a".repeat(1_001) },
    { credits: {} },
    { tags: ["a"] },
    { ratelimits: [{}] },
  ]) {
    expect(accepts(refused), JSON.stringify(refused)).toBe(false);
  }
});

it("the fast path accepts a usual request of UpdateKey, and no request with another rule to check", () => {
  const isAccepted = compileFastPath(UpdateKeyRequestSchema);
  const accepts = (members: MessageInitShape<typeof UpdateKeyRequestSchema>) =>
    isAccepted(create(UpdateKeyRequestSchema, { keyId: "key_1", ...members }));
  expect(accepts({})).toBe(true);
  expect(accepts({ name: "a", enabled: false, updateMask: { paths: ["name", "enabled"] } })).toBe(true);
  expect(accepts({ meta: { plan: "pro" }, expires: { seconds: 1n } })).toBe(true);
  for (const refused of [
    { name: "" },
    { owner: { case: "identityId", value: "" } },
    { owner: { case: "externalId", value: "a" } },
    { updateMask: { paths: ["name", "unknown"] } },
    { updateMask: { paths: ["credits.other"] } },
    { scopes: ["a"] },
    { credits: {} },
  ] satisfies MessageInitShape<typeof UpdateKeyRequestSchema>[]) {
    expect(accepts(refused), JSON.stringify(refused)).toBe(false);
  }
});
