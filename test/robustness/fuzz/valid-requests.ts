import { type DescField, type DescMessage, getOption, hasOption, ScalarType } from "@bufbuild/protobuf";
import { FieldMaskSchema, StructSchema, TimestampSchema } from "@bufbuild/protobuf/wkt";
import fc from "fast-check";
import { type FieldRules, field as fieldRules, oneof as oneofRules } from "../../../gen/buf/validate/validate_pb.js";
import { updateMaskOf } from "../../../src/call/update-mask.js";
import type { PoolName, Template } from "./request.js";

/** Generates valid requests from the descriptor: of each field's type, and within its rules. */
export function validRequest(schema: DescMessage): fc.Arbitrary<Template> {
  const arbitrary = cache.get(schema) ?? makeValidRequest(schema);
  cache.set(schema, arbitrary);
  return arbitrary;
}

/** Many kinds use the same generator. */
const cache = new Map<DescMessage, fc.Arbitrary<Template>>();

function makeValidRequest(schema: DescMessage): fc.Arbitrary<Template> {
  const groups = schema.members
    .filter((member) => member.kind === "oneof" || member.message?.typeName !== FieldMaskSchema.typeName)
    .map((member): fc.Arbitrary<Template> => {
      if (member.kind === "field") return memberOf(schema, member);
      const chosen = fc.oneof(...member.fields.map((field) => named(field, validValue(field))));
      const isRequired = hasOption(member, oneofRules) && getOption(member, oneofRules).required;
      return isRequired ? chosen : fc.oneof(fc.constant({}), chosen);
    });
  return fc.tuple(...groups).map((parts) => Object.assign({}, ...parts));
}

/** Generates valid values of a field. */
export function validValue(field: DescField): fc.Arbitrary<unknown> {
  if (field.name === "cursor") return refersTo(`cursor of ${field.parent.typeName}`);
  const single = valuesByName[field.toString()] ?? valuesByName[field.name] ?? valueByType(field);
  if (field.fieldKind !== "list") return single;
  return fc.uniqueArray(single, { maxLength: 5 });
}

/** The rules of a field, if it has any. */
export function rulesOf(field: DescField): FieldRules | undefined {
  return hasOption(field, fieldRules) ? getOption(field, fieldRules) : undefined;
}

/** Any character. fast-check's own generator takes a second to set up. */
export const anyCharacter = fc
  .integer({ min: 0, max: 0x10ffff })
  .map((code) => (code >= 0xd800 && code <= 0xdfff ? "x" : String.fromCodePoint(code)));

/** Mostly printable ASCII, for readable reports. */
const character = fc.oneof(
  { weight: 4, arbitrary: fc.integer({ min: 32, max: 126 }).map((code) => String.fromCharCode(code)) },
  anyCharacter,
);

/** Text that can be stored: without NUL. */
export const text = fc.string({ unit: character, minLength: 1, maxLength: 40 }).map((any) => withoutNul(any));

/** Any JSON object that can be stored. */
const meta: fc.Arbitrary<Record<string, unknown>> = fc
  .dictionary(fc.oneof(text, fc.constantFrom("constructor", "toString", "__proto__", "$typeName", "")), json(), {
    maxKeys: 5,
  })
  .map((object) => Object.fromEntries(Object.entries(object)));

function json(): fc.Arbitrary<unknown> {
  const { value } = fc.letrec((tie) => ({
    value: fc.oneof(
      { depthSize: "small", withCrossShrink: true },
      fc.oneof(
        text,
        fc.constant(""),
        fc.double({ noNaN: true, noDefaultInfinity: true }),
        fc.boolean(),
        fc.constant(null),
      ),
      fc.array(tie("value"), { maxLength: 3 }),
      fc.dictionary(text, tie("value"), { maxKeys: 3 }),
    ),
  }));
  return value;
}

function memberOf(schema: DescMessage, field: DescField): fc.Arbitrary<Template> {
  const given = named(field, validValue(field));
  const rules = rulesOf(field);
  const isMandatory = !field.proto.proto3Optional && field.fieldKind === "scalar" && rules?.type.case === "string";
  if (isMandatory || rules?.required) return given;
  const canBeCleared = updateMaskOf(schema)?.changeable.has(field.name) && field.name !== "enabled";
  return canBeCleared
    ? fc.oneof(fc.constant({}), { arbitrary: given, weight: 2 }, named(field, fc.constant(null)))
    : fc.oneof(fc.constant({}), given);
}

function named(field: DescField, value: fc.Arbitrary<unknown>): fc.Arbitrary<Template> {
  return value.map((given) => ({ [field.jsonName]: given }));
}

const name = fc.stringMatching(/^[A-Za-z0-9_-]{1,12}$/);
const dotted = (part: fc.Arbitrary<string>) =>
  fc.oneof(
    fc.constantFrom("*", "keys.*", "keys.read", "identities.read"),
    fc.array(part, { minLength: 1, maxLength: 4 }).map((parts) => parts.join(".")),
  );
const scope = dotted(name);
const permission = dotted(fc.stringMatching(/^[A-Za-z0-9_:-]{1,12}$/));
const query = fc
  .array(
    permission.filter((each) => !each.includes("*")),
    { minLength: 1, maxLength: 4 },
  )
  .chain((names) =>
    fc
      .constantFrom(" AND ", " OR ", " and ")
      .map((operator) => names.filter((each) => !/^(and|or)$/i.test(each)).join(operator) || "a"),
  );
const externalId = text.map((any) => any.replace(/\p{Cc}/gu, "") || "x");

/** Generators for fields whose type and rules do not define their valid values completely. */
const valuesByName: Record<string, fc.Arbitrary<unknown>> = {
  key_id: refersTo("keyId"),
  key: fc.oneof(refersTo("secret"), text),
  identity_id: refersTo("identityId"),
  external_id: fc.oneof(refersTo("externalId"), externalId),
  identity: fc.oneof(refersTo("identityId"), refersTo("externalId")),
  workspace_id: refersTo("workspaceId"),
  "field latchkey.v1.ListAuditEventsRequest.workspace_id": refersTo("homeId"),
  "field latchkey.v1.CreateIdentityRequest.external_id": externalId.map((id) => `${id.slice(0, 40)}`),
  "field latchkey.v1.VerifyKeyRequest.permissions": query,
  scopes: scope,
  permissions: permission,
  prefix: fc.stringMatching(/^[A-Za-z0-9_]{1,16}$/),
  expires: fc.integer({ min: Date.UTC(2100, 0), max: Date.UTC(9999, 11, 31) }),
};

function refersTo(pool: PoolName): fc.Arbitrary<unknown> {
  return fc.nat(7).map((index) => ({ refersTo: pool, index }));
}

function valueByType(field: DescField): fc.Arbitrary<unknown> {
  const rules = rulesOf(field);
  if (rules !== undefined && rules.cel.length > 0) {
    throw new Error(`${field}: add valid values for its rule ${rules.cel[0]?.id} to valuesByName`);
  }
  if (field.enum !== undefined) {
    return fc.constantFrom(...field.enum.values.filter(({ number }) => number !== 0).map(({ localName }) => localName));
  }
  const byMessage = field.message && valuesByMessage[field.message.typeName];
  const byScalar = field.scalar && valuesByScalar[field.scalar]?.(rules);
  const found = byMessage ?? byScalar;
  if (found === undefined) throw new Error(`${field}: there is no generator for a field of this type`);
  return found;
}

const valuesByMessage: Record<string, fc.Arbitrary<unknown>> = {
  [StructSchema.typeName]: meta,
  [TimestampSchema.typeName]: fc.integer({ min: -62_135_596_800_000, max: Date.UTC(9999, 11, 31) }),
};

const valuesByScalar: Partial<Record<ScalarType, (rules: FieldRules | undefined) => fc.Arbitrary<unknown>>> = {
  [ScalarType.STRING]: () => text,
  [ScalarType.BOOL]: () => fc.boolean(),
  [ScalarType.INT32]: (rules) => fc.integer(boundsOf(rules)),
  [ScalarType.INT64]: (rules) => fc.integer(boundsOf(rules)),
};

/** The minimum and maximum that a field's rules allow. */
export function boundsOf(rules: FieldRules | undefined): { min: number; max: number } {
  const type = rules?.type;
  if (type?.case !== "int32" && type?.case !== "int64") return { min: -(2 ** 31), max: 2 ** 31 - 1 };
  const { greaterThan, lessThan } = type.value;
  return { min: Number(greaterThan.value ?? 0), max: Number(lessThan.value ?? 0) };
}

function withoutNul(any: string): string {
  return any.replaceAll("\0", "") || "x";
}
