import { type DescField, type DescMessage, getOption, hasOption, ScalarType } from "@bufbuild/protobuf";
import { FieldMaskSchema, StructSchema, TimestampSchema } from "@bufbuild/protobuf/wkt";
import fc from "fast-check";
import {
  type FieldRules,
  field as fieldRules,
  message as messageRules,
  oneof as oneofRules,
} from "../../../gen/buf/validate/validate_pb.js";
import { updateMaskOf } from "../../../src/call/update-mask.js";
import { nestedMessageOf } from "../../../src/rpc/message-limits.js";
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
  const byMessage = requestsByMessage[schema.typeName];
  if (byMessage !== undefined) return byMessage;
  if (hasMessageRules(schema)) throw new Error(`${schema}: add valid messages for its rule to requestsByMessage`);
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
  const type = rulesOf(field)?.type;
  const { minItems = 0n, maxItems = 5n } = type?.case === "repeated" ? type.value : {};
  const bounds = { minLength: Number(minItems), maxLength: Math.min(5, Number(maxItems)) };
  const selector = uniqueBy[field.name];
  return selector
    ? fc.uniqueArray(single as fc.Arbitrary<Template>, { ...bounds, selector })
    : fc.uniqueArray(single, bounds);
}

/** What makes the messages of a list different, as their rule says. */
const uniqueBy: Record<string, (message: Template) => unknown> = {
  ratelimits: ({ name }) => name,
  keys: ({ hash }) => hash,
  limits: ({ namespace, identifier }) => JSON.stringify([namespace, identifier]),
};

/** Whether a message has rules about several of its fields. */
export function hasMessageRules(schema: DescMessage): boolean {
  return hasOption(schema, messageRules) && getOption(schema, messageRules).cel.length > 0;
}

/** A valid message, always the same. */
export function sampleOf(schema: DescMessage): Template {
  const sample = samples.get(schema) ?? (fc.sample(validRequest(schema), { numRuns: 1, seed: 1 })[0] as Template);
  samples.set(schema, sample);
  return sample;
}

const samples = new Map<DescMessage, Template>();

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
  if (isMandatory(field) || rules?.required) return given;
  const canBeCleared = updateMaskOf(schema)?.changeable.has(field.name) && field.name !== "enabled";
  return canBeCleared
    ? fc.oneof(fc.constant({}), { arbitrary: given, weight: 2 }, named(field, fc.constant(null)))
    : fc.oneof(fc.constant({}), given);
}

/** Whether the rules of a field without presence refuse its zero value. */
function isMandatory(field: DescField): boolean {
  const rules = rulesOf(field);
  if (field.proto.proto3Optional || rules === undefined) return false;
  const { type } = rules;
  if (type.case === "repeated") return type.value.minItems > 0n;
  return type.case === "string" || (isInteger(rules) && boundsOf(rules).min > 0);
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

const amount = fc.integer({ min: 1, max: 1_000_000 });
const limitPerWindow = { limit: amount, duration: fc.integer({ min: 1_000, max: 2_592_000_000 }) };
const limitName = fc.oneof(fc.constantFrom("requests", "tokens"), text);

const refill = fc.oneof(
  fc.record({ interval: fc.constant("daily"), amount }),
  fc.record({ interval: fc.constant("monthly"), amount, refillDay: fc.integer({ min: 1, max: 31 }) }),
);
const credits = fc.record({ remaining: amount, refill }, { requiredKeys: ["remaining"] });

/** A period of at most 1,000 parts. */
const period = fc
  .record({
    granularity: fc.constantFrom("hour", "day", "month"),
    from: fc.integer({ min: 0, max: Date.UTC(2100, 0) }),
    parts: fc.integer({ min: 1, max: 900 }),
  })
  .map(({ granularity, from, parts }) => ({ granularity, from, to: from + parts * 3_600_000 }));

/** Generators for messages with rules about several of their fields. */
const requestsByMessage: Record<string, fc.Arbitrary<Template>> = {
  "latchkey.v1.RateLimitCheck": fc.record(
    // The key need not have such a limit, because the request defines it.
    { name: limitName, ...limitPerWindow, cost: fc.integer({ min: 0, max: 100 }) },
    { requiredKeys: ["name", "limit", "duration"] },
  ),
  "latchkey.v1.CreditsRefill": refill,
  "latchkey.v1.UsagePeriod": period,
  // A key without credits can only be set.
  "latchkey.v1.UpdateCreditsRequest": fc
    .record({ keyId: refersTo("keyId"), value: fc.integer({ min: 0, max: 1_000_000 }) }, { requiredKeys: ["keyId"] })
    .map((request) => ({ ...request, operation: "set" })),
};

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
  "field latchkey.v1.CreateRoleRequest.name": text.filter((any) => !any.startsWith("role_")),
  scopes: scope,
  permissions: permission,
  prefix: fc.stringMatching(/^[A-Za-z0-9_]{1,16}$/),
  api_id: refersTo("apiId"),
  role: refersTo("role"),
  role_id: refersTo("role"),
  roles: refersTo("role"),
  permission: refersTo("slug"),
  slug: fc
    .array(fc.stringMatching(/^[A-Za-z0-9_:-]{1,12}$/), { minLength: 1, maxLength: 4 })
    .map((parts) => parts.join(".")),
  namespace: fc.constantFrom("email.send", "sms.send"),
  identifier: fc.oneof(fc.constantFrom("user_1", "user_2", "premium_*"), text),
  hash: fc.uint8Array({ minLength: 32, maxLength: 32 }).map((bytes) => Buffer.from(bytes).toString("base64")),
  ratelimits: fc.record(
    { name: limitName, ...limitPerWindow, autoApply: fc.boolean() },
    { requiredKeys: ["name", "limit", "duration"] },
  ),
  "field latchkey.v1.VerifyKeyRequest.ratelimits": requestsByMessage[
    "latchkey.v1.RateLimitCheck"
  ] as fc.Arbitrary<unknown>,
  "field latchkey.v1.CreateKeyRequest.credits": credits,
  "field latchkey.v1.ImportedKey.credits": credits,
  "field latchkey.v1.UpdateKeyRequest.credits": fc.oneof(
    credits,
    credits.map((given) => ({ ...given, refill: null })),
  ),
  "field latchkey.v1.VerifyKeyRequest.credits": fc.record({ cost: fc.integer({ min: 0, max: 100 }) }),
  recoverable: fc.constant(false),
  decrypt: fc.constant(false),
  expires: fc.integer({ min: Date.UTC(2100, 0), max: Date.UTC(9999, 11, 31) }),
};

function refersTo(pool: PoolName): fc.Arbitrary<unknown> {
  return fc.nat(7).map((index) => ({ refersTo: pool, index }));
}

function valueByType(field: DescField): fc.Arbitrary<unknown> {
  const rules = rulesOf(field);
  // A list of messages with such a rule is in uniqueBy.
  if (rules !== undefined && rules.cel.length > 0 && !uniqueBy[field.name]) {
    throw new Error(`${field}: add valid values for its rule ${rules.cel[0]?.id} to valuesByName`);
  }
  if (field.enum !== undefined) {
    return fc.constantFrom(...field.enum.values.filter(({ number }) => number !== 0).map(({ localName }) => localName));
  }
  const nested = nestedMessageOf(field);
  if (nested !== undefined) return validRequest(nested);
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
  [ScalarType.STRING]: textWithin,
  [ScalarType.BOOL]: () => fc.boolean(),
  [ScalarType.INT32]: (rules) => fc.integer(boundsOf(rules)),
  [ScalarType.INT64]: (rules) => fc.integer(boundsOf(rules)),
};

/** Text that the rules of a field, or of the items of a list, allow. */
function textWithin(rules: FieldRules | undefined): fc.Arbitrary<string> {
  const type = rules?.type.case === "repeated" ? rules.type.value.items?.type : rules?.type;
  if (type?.case !== "string") return text;
  const { in: allowed, maxLen } = type.value;
  return allowed.length > 0
    ? fc.constantFrom(...allowed)
    : text.map((any) => [...any].slice(0, Number(maxLen)).join(""));
}

function isInteger(rules: FieldRules | undefined): boolean {
  return rules?.type.case === "int32" || rules?.type.case === "int64";
}

/** The minimum and maximum that a field's rules allow. */
export function boundsOf(rules: FieldRules | undefined): { min: number; max: number } {
  const type = rules?.type;
  if (type?.case !== "int32" && type?.case !== "int64") return { min: -(2 ** 31), max: 2 ** 31 - 1 };
  const { greaterThan, lessThan } = type.value;
  const min = Number(greaterThan.value ?? -(2 ** 31)) + (greaterThan.case === "gt" ? 1 : 0);
  const max = Number(lessThan.value ?? 2 ** 31 - 1) - (lessThan.case === "lt" ? 1 : 0);
  return { min, max };
}

function withoutNul(any: string): string {
  return any.replaceAll("\0", "") || "x";
}
