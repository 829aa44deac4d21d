import { type DescField, ScalarType } from "@bufbuild/protobuf";
import { StructSchema, TimestampSchema } from "@bufbuild/protobuf/wkt";
import fc from "fast-check";
import { nestedMessageOf } from "../../../src/rpc/message-limits.js";
import { type ProtocolName, protocolNames } from "../../support/clients/raw-request.js";
import { type Place, placesIn, withValue } from "../../support/places.js";
import { asIs, type Kind } from "./kind.js";
import type { Operation } from "./operations.js";
import { boundsOf, hasMessageRules, rulesOf, sampleOf, text, validRequest } from "./valid-requests.js";

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
        const { place, value, form } = bound;
        const expected = form === "invalid" ? { form, location: place.location } : { form };
        return asIs(operation, protocol, withValue(valid, place, value, sampleOf), expected);
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
        .map(([valid, place, names, inner]) => {
          const prototypeMembers = Object.fromEntries(names.map((name) => [name, inner]));
          const struct = { ...inner, a: [prototypeMembers], ...prototypeMembers };
          return asIs(operation, protocol, withValue(valid, place, struct, sampleOf), { form: "valid" });
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
        .map(([valid, place, number, isNested]) => {
          const struct = isNested ? { a: [{ b: number }] } : { number };
          const expected = { form: "invalid", location: place.location } as const;
          return asIs(operation, protocol, withValue(valid, place, struct, sampleOf), expected);
        }),
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
  const places = fc.constantFrom(...placesIn(operation.rpc.input).filter(({ field }) => containsText(field)));
  return fc
    .tuple(validRequest(operation.rpc.input), places, text, part, fc.boolean())
    .map(([valid, place, around, unusual, key]) => {
      const { field } = place;
      const value = `${around}${unusual}`;
      const struct = key ? { [value]: 1 } : { a: [{ b: value }] };
      const isStruct = field.message !== undefined;
      // `meta` may contain long texts, up to its own limit.
      const isMeta = isStruct && unusual !== "\0" && Buffer.byteLength(JSON.stringify(struct)) <= maxMetaBytes;
      // A text without a limit is compared, and not stored.
      const isValid = isMeta || (!isStruct && unusual !== "\0" && hasNoLimit(field));
      const given = isStruct ? struct : field.fieldKind === "list" ? [value] : value;
      const expected = isValid
        ? ({ form: "valid" } as const)
        : ({ form: "invalid", location: place.location } as const);
      return asIs(operation, protocol, withValue(valid, place, given, sampleOf), expected);
    });
}

/** The Struct fields of an operation, at any depth. */
export function structsIn({ rpc }: Operation): Place[] {
  return placesIn(rpc.input).filter(({ field }) => field.message?.typeName === StructSchema.typeName);
}

function containsText({ scalar, message }: DescField): boolean {
  return scalar === ScalarType.STRING || message?.typeName === StructSchema.typeName;
}

/** Whether a text may have any length. */
function hasNoLimit(field: DescField): boolean {
  const type = rulesOf(field)?.type;
  return type?.case === "string" && type.value.maxLen === 0n && type.value.in.length === 0;
}

interface Bound {
  readonly place: Place;
  readonly value: unknown;
  readonly form: "valid" | "invalid" | "either";
}

const maxMetaBytes = 16 * 1024;

/** The values at and beyond the bounds of each field. */
function boundsIn({ rpc }: Operation): Bound[] {
  return placesIn(rpc.input).flatMap((place): Bound[] => {
    const { field } = place;
    // Together with the other fields of such a message, the value may be invalid.
    const within = hasMessageRules(field.parent) ? "either" : "valid";
    const valid = (value: unknown): Bound => ({ place, value, form: within });
    const invalid = (value: unknown): Bound => ({ place, value, form: "invalid" });
    const rules = rulesOf(field);
    const { type } = rules ?? {};
    const message = nestedMessageOf(field);
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
      const { greaterThan, lessThan } = type.value;
      return [
        ...(greaterThan.case === undefined ? [] : [valid(min), invalid(min - 1)]),
        ...(lessThan.case === undefined ? [] : [valid(max), invalid(max + 1)]),
      ];
    }
    if (type?.case === "repeated") {
      const maxItems = Number(type.value.maxItems);
      if (message !== undefined) return [invalid(Array.from({ length: maxItems + 1 }, () => sampleOf(message)))];
      const maxItemLength = type.value.items?.type.case === "string" ? Number(type.value.items.type.value.maxLen) : 0;
      const items = (count: number) => Array.from({ length: count }, (_, index) => `p${index}`);
      return [
        valid(items(maxItems)),
        invalid(items(maxItems + 1)),
        valid(["x".repeat(maxItemLength)]),
        invalid(["x".repeat(maxItemLength + 1)]),
      ];
    }
    if (type?.case !== "string" || type.value.in.length > 0) return [];
    const maxLength = Number(type.value.maxLen);
    if (maxLength === 0) return [];
    const beyond = [invalid("x".repeat(maxLength + 1)), invalid("🗝".repeat(maxLength + 1))];
    const longest = hasFurtherRules(field) ? [] : [valid("x".repeat(maxLength)), valid("🗝".repeat(maxLength))];
    return [...beyond, ...longest, ...(type.value.minLen > 0n ? [invalid("")] : [])];
  });
}

/** Texts that a grammar or a checksum validates further. */
function hasFurtherRules({ name, parent }: DescField): boolean {
  return (
    ["cursor", "prefix", "slug", "hash"].includes(name) ||
    (name === "permissions" && parent.name === "VerifyKeyRequest")
  );
}

function nested(levels: number): Record<string, unknown> {
  return levels === 1 ? {} : { a: nested(levels - 1) };
}

/** A `meta` of this many bytes as JSON. */
function metaOfSize(bytes: number): Record<string, unknown> {
  return { a: "x".repeat(bytes - `{"a":""}`.length) };
}
