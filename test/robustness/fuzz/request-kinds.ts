import { type DescField, ScalarType } from "@bufbuild/protobuf";
import { StructSchema, TimestampSchema } from "@bufbuild/protobuf/wkt";
import fc from "fast-check";
import { type ProtocolName, protocolNames } from "../../support/clients/raw-request.js";
import { asIs, type Kind } from "./kind.js";
import type { Operation } from "./operations.js";
import type { resolved } from "./request.js";
import { boundsOf, rulesOf, text, validRequest } from "./valid-requests.js";

/** Requests with unusual values in valid encoding, for every protocol. */
export const requestKinds: readonly Kind[] = [
  {
    name: "valid",
    weight: 90,
    protocols: protocolNames,
    make: (operation, protocol) =>
      validRequest(operation.rpc.input).map((valid) => asIs(operation, protocol, valid, { form: "valid" })),
  },
  {
    name: "boundary values",
    weight: 40,
    protocols: protocolNames,
    make: (operation, protocol) =>
      fc.tuple(validRequest(operation.rpc.input), fc.constantFrom(...boundsIn(operation))).map(([valid, bound]) => {
        const { field, value, form } = bound;
        const expected = form === "invalid" ? { form, location: field.jsonName } : { form };
        return asIs(operation, protocol, withField(valid, field, value), expected);
      }),
  },
  {
    name: "NUL",
    protocols: protocolNames,
    make: (operation, protocol) => withText(operation, protocol, fc.constant("\0")),
  },
  {
    name: "over-long text",
    protocols: protocolNames,
    make: (operation, protocol) =>
      withText(
        operation,
        protocol,
        fc.integer({ min: 1_001, max: 50_000 }).map((n) => "x".repeat(n)),
      ),
  },
  {
    name: "prototype property names",
    protocols: protocolNames,
    applies: (operation) => structsIn(operation).length > 0,
    make: (operation, protocol) =>
      fc
        .tuple(
          validRequest(operation.rpc.input),
          fc.constantFrom(...structsIn(operation)),
          prototypeNames,
          fc.constantFrom({}, { a: 1 }, { a: [null, ""] }),
        )
        .map(([valid, field, names, inner]) => {
          const prototypeMembers = Object.fromEntries(names.map((name) => [name, inner]));
          return asIs(
            operation,
            protocol,
            withField(valid, field, { ...inner, a: [prototypeMembers], ...prototypeMembers }),
            { form: "valid" },
          );
        }),
  },
  {
    name: "NaN and Infinity",
    protocols: ["grpc", "connect-proto", "grpc-web"],
    applies: (operation) => structsIn(operation).length > 0,
    make: (operation, protocol) =>
      fc
        .tuple(
          validRequest(operation.rpc.input),
          fc.constantFrom(...structsIn(operation)),
          fc.constantFrom(Number.NaN, Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY),
          fc.boolean(),
        )
        .map(([valid, field, number, isNested]) =>
          asIs(operation, protocol, withField(valid, field, isNested ? { a: [{ b: number }] } : { number }), {
            form: "invalid",
            location: field.jsonName,
          }),
        ),
  },
];

const prototypeNames = fc.uniqueArray(
  fc.constantFrom(
    "__proto__",
    "constructor",
    "prototype",
    "toString",
    "hasOwnProperty",
    "__defineGetter__",
    "$typeName",
  ),
  { minLength: 1 },
);

/** A request in which one text contains an unusual part. */
function withText(operation: Operation, protocol: ProtocolName, part: fc.Arbitrary<string>) {
  const fields = fc.constantFrom(...operation.rpc.input.fields.filter(containsText));
  return fc
    .tuple(validRequest(operation.rpc.input), fields, text, part, fc.boolean())
    .map(([valid, field, around, unusual, key]) => {
      const value = `${around}${unusual}`;
      const struct = key ? { [value]: 1 } : { a: [{ b: value }] };
      const isStruct = field.message !== undefined;
      // `meta` may contain long texts, up to its own limit.
      const isValid = isStruct && unusual !== "\0" && Buffer.byteLength(JSON.stringify(struct)) <= maxMetaBytes;
      const given = isStruct ? struct : field.fieldKind === "list" ? [value] : value;
      const expected = isValid
        ? ({ form: "valid" } as const)
        : ({ form: "invalid", location: field.jsonName } as const);
      return asIs(operation, protocol, withField(valid, field, given), expected);
    });
}

/** The Struct fields of an operation. */
export function structsIn({ rpc }: Operation): DescField[] {
  return rpc.input.fields.filter(({ message }) => message?.typeName === StructSchema.typeName);
}

/** The request with one field set. Other fields of the same oneof are removed. */
export function withField(valid: ReturnType<typeof resolved>, field: DescField, value: unknown) {
  const others = new Set(field.oneof?.fields.map(({ jsonName }) => jsonName));
  const kept = Object.entries(valid).filter(([name]) => !others.has(name));
  return { ...Object.fromEntries(kept), [field.jsonName]: value };
}

function containsText({ scalar, message }: DescField): boolean {
  return scalar === ScalarType.STRING || message?.typeName === StructSchema.typeName;
}

interface Bound {
  readonly field: DescField;
  readonly value: unknown;
  readonly form: "valid" | "invalid";
}

const maxMetaBytes = 16 * 1024;

/** The values at and beyond the bounds of each field. */
function boundsIn({ rpc }: Operation): Bound[] {
  return rpc.input.fields.flatMap((field): Bound[] => {
    const valid = (value: unknown): Bound => ({ field, value, form: "valid" });
    const invalid = (value: unknown): Bound => ({ field, value, form: "invalid" });
    const rules = rulesOf(field);
    const { type } = rules ?? {};
    if (field.message?.typeName === StructSchema.typeName) {
      return [
        valid(nested(32)),
        invalid(nested(33)),
        valid(metaOfSize(maxMetaBytes)),
        invalid(metaOfSize(maxMetaBytes + 1)),
      ];
    }
    if (field.message?.typeName === TimestampSchema.typeName) return [invalid(253_402_300_800_000)];
    if (type?.case === "int32" || type?.case === "int64") {
      const { min, max } = boundsOf(rules);
      return [valid(min), valid(max), invalid(min - 1), invalid(max + 1)];
    }
    if (type?.case === "repeated") {
      const maxItems = Number(type.value.maxItems);
      const maxItemLength = type.value.items?.type.case === "string" ? Number(type.value.items.type.value.maxLen) : 0;
      const items = (count: number) => Array.from({ length: count }, (_, index) => `p${index}`);
      return [
        valid(items(maxItems)),
        invalid(items(maxItems + 1)),
        valid(["x".repeat(maxItemLength)]),
        invalid(["x".repeat(maxItemLength + 1)]),
      ];
    }
    if (type?.case !== "string") return [];
    const maxLength = Number(type.value.maxLen);
    const beyond = [invalid("x".repeat(maxLength + 1)), invalid("🗝".repeat(maxLength + 1))];
    const within = hasFurtherRules(field) ? [] : [valid("x".repeat(maxLength)), valid("🗝".repeat(maxLength))];
    return [...beyond, ...within, ...(type.value.minLen > 0n ? [invalid("")] : [])];
  });
}

/** Texts that a grammar or a checksum validates further. */
function hasFurtherRules({ name, parent }: DescField): boolean {
  return name === "cursor" || name === "prefix" || (name === "permissions" && parent.name === "VerifyKeyRequest");
}

function nested(levels: number): Record<string, unknown> {
  return levels === 1 ? {} : { a: nested(levels - 1) };
}

/** A `meta` of this many bytes as JSON. */
function metaOfSize(bytes: number): Record<string, unknown> {
  return { a: "x".repeat(bytes - `{"a":""}`.length) };
}
