import { type DescField, ScalarType } from "@bufbuild/protobuf";
import { StructSchema, TimestampSchema } from "@bufbuild/protobuf/wkt";
import fc from "fast-check";
import { boundsOf, goodRequest, rulesOf, text } from "./good-requests.js";
import { asIs, type Kind } from "./kind.js";
import type { Operation } from "./operations.js";
import type { resolved } from "./request.js";
import { type ProtocolName, protocolNames } from "./sent.js";

/** Requests that every protocol can be sent, odd in what they say and not in how. */
export const requestKinds: readonly Kind[] = [
  {
    name: "good",
    weight: 90,
    protocols: protocolNames,
    make: (operation, protocol) =>
      goodRequest(operation.rpc.input).map((good) => asIs(operation, protocol, good, { form: "sound" })),
  },
  {
    name: "at a bound",
    weight: 40,
    protocols: protocolNames,
    make: (operation, protocol) =>
      fc.tuple(goodRequest(operation.rpc.input), fc.constantFrom(...boundsIn(operation))).map(([good, bound]) => {
        const { field, value, form } = bound;
        const expected = form === "unsound" ? { form, location: field.jsonName } : { form };
        return asIs(operation, protocol, withField(good, field, value), expected);
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
    name: "names of prototypes",
    protocols: protocolNames,
    applies: (operation) => structsIn(operation).length > 0,
    make: (operation, protocol) =>
      fc
        .tuple(
          goodRequest(operation.rpc.input),
          fc.constantFrom(...structsIn(operation)),
          prototypeNames,
          fc.constantFrom({}, { a: 1 }, { a: [null, ""] }),
        )
        .map(([good, field, names, inner]) => {
          const made = Object.fromEntries(names.map((name) => [name, inner]));
          return asIs(operation, protocol, withField(good, field, { ...inner, a: [made], ...made }), { form: "sound" });
        }),
  },
  {
    name: "numbers that JSON has not",
    protocols: ["grpc", "connect-proto", "grpc-web"],
    applies: (operation) => structsIn(operation).length > 0,
    make: (operation, protocol) =>
      fc
        .tuple(
          goodRequest(operation.rpc.input),
          fc.constantFrom(...structsIn(operation)),
          fc.constantFrom(Number.NaN, Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY),
          fc.boolean(),
        )
        .map(([good, field, number, deeper]) =>
          asIs(operation, protocol, withField(good, field, deeper ? { a: [{ b: number }] } : { number }), {
            form: "unsound",
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

/** A request of which one text contains something that does not belong there. */
function withText(operation: Operation, protocol: ProtocolName, part: fc.Arbitrary<string>) {
  const fields = fc.constantFrom(...operation.rpc.input.fields.filter(holdsText));
  return fc
    .tuple(goodRequest(operation.rpc.input), fields, text, part, fc.boolean())
    .map(([good, field, around, odd, key]) => {
      const value = `${around}${odd}`;
      const struct = key ? { [value]: 1 } : { a: [{ b: value }] };
      const isStruct = field.message !== undefined;
      // A meta may hold long texts, up to its own limit.
      const isFine = isStruct && odd !== "\0" && Buffer.byteLength(JSON.stringify(struct)) <= largestMeta;
      const given = isStruct ? struct : field.fieldKind === "list" ? [value] : value;
      const expected = isFine ? ({ form: "sound" } as const) : ({ form: "unsound", location: field.jsonName } as const);
      return asIs(operation, protocol, withField(good, field, given), expected);
    });
}

/** The fields of an operation that hold JSON. */
export function structsIn({ rpc }: Operation): DescField[] {
  return rpc.input.fields.filter(({ message }) => message?.typeName === StructSchema.typeName);
}

/** The request with one field given so; of fields that exclude each other, it takes the place of the others. */
export function withField(good: ReturnType<typeof resolved>, field: DescField, value: unknown) {
  const others = new Set(field.oneof?.fields.map(({ jsonName }) => jsonName));
  const kept = Object.entries(good).filter(([name]) => !others.has(name));
  return { ...Object.fromEntries(kept), [field.jsonName]: value };
}

function holdsText({ scalar, message }: DescField): boolean {
  return scalar === ScalarType.STRING || message?.typeName === StructSchema.typeName;
}

interface Bound {
  readonly field: DescField;
  readonly value: unknown;
  readonly form: "sound" | "unsound";
}

const largestMeta = 16 * 1024;

/** The values at and beyond the bounds of each field. */
function boundsIn({ rpc }: Operation): Bound[] {
  return rpc.input.fields.flatMap((field): Bound[] => {
    const sound = (value: unknown): Bound => ({ field, value, form: "sound" });
    const unsound = (value: unknown): Bound => ({ field, value, form: "unsound" });
    const rules = rulesOf(field);
    const { type } = rules ?? {};
    if (field.message?.typeName === StructSchema.typeName) {
      return [sound(nested(32)), unsound(nested(33)), sound(filling(largestMeta)), unsound(filling(largestMeta + 1))];
    }
    if (field.message?.typeName === TimestampSchema.typeName) return [unsound(253_402_300_800_000)];
    if (type?.case === "int32" || type?.case === "int64") {
      const { min, max } = boundsOf(rules);
      return [sound(min), sound(max), unsound(min - 1), unsound(max + 1)];
    }
    if (type?.case === "repeated") {
      const most = Number(type.value.maxItems);
      const longest = type.value.items?.type.case === "string" ? Number(type.value.items.type.value.maxLen) : 0;
      const items = (count: number) => Array.from({ length: count }, (_, index) => `p${index}`);
      return [
        sound(items(most)),
        unsound(items(most + 1)),
        sound(["x".repeat(longest)]),
        unsound(["x".repeat(longest + 1)]),
      ];
    }
    if (type?.case !== "string") return [];
    const most = Number(type.value.maxLen);
    const beyond = [unsound("x".repeat(most + 1)), unsound("🗝".repeat(most + 1))];
    const within = isJudgedByMore(field) ? [] : [sound("x".repeat(most)), sound("🗝".repeat(most))];
    return [...beyond, ...within, ...(type.value.minLen > 0n ? [unsound("")] : [])];
  });
}

/** Texts of which a grammar or a checksum decides, too. */
function isJudgedByMore({ name, parent }: DescField): boolean {
  return name === "cursor" || name === "prefix" || (name === "permissions" && parent.name === "VerifyKeyRequest");
}

function nested(levels: number): Record<string, unknown> {
  return levels === 1 ? {} : { a: nested(levels - 1) };
}

/** A meta of so many bytes as JSON. */
function filling(bytes: number): Record<string, unknown> {
  return { a: "x".repeat(bytes - `{"a":""}`.length) };
}
