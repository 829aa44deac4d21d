import { type DescField, ScalarType } from "@bufbuild/protobuf";
import { FieldMaskSchema, StructSchema, TimestampSchema } from "@bufbuild/protobuf/wkt";
import fc from "fast-check";
import { updateMaskOf } from "../../../src/call/update-mask.js";
import { nestedMessageOf } from "../../../src/rpc/message-limits.js";
import { type ProtocolName, toRawRequest } from "../../support/clients/raw-request.js";
import { type Place, placesIn, withMessage, withValue } from "../../support/places.js";
import { toProtoJson } from "./encode.js";
import { jsonText } from "./json-text.js";
import { corrupted, type Draft, type Input, type Kind, located } from "./kind.js";
import { bodyFieldOf, type Operation } from "./operations.js";
import { type Request, resolved, type Template } from "./request.js";
import { structsIn } from "./request-kinds.js";
import { anyCharacter, sampleOf, validRequest, validValue } from "./valid-requests.js";

const protocols: readonly ProtocolName[] = ["http", "connect"];
const levels = 10_000;

/** Unusual and invalid JSON bodies. */
export const jsonKinds: readonly Kind[] = [
  {
    name: "arbitrary JSON",
    protocols,
    make: (operation, protocol) =>
      fc
        .oneof(fc.jsonValue(), fc.object())
        .map((json) => changedJson(operation, protocol, {}, () => json, { form: "either" })),
  },
  {
    name: "wrong type",
    protocols,
    make: (operation, protocol) => {
      return fc
        .constantFrom(...settableIn(operation))
        .chain((place) =>
          fc.tuple(
            validRequest(operation.rpc.input),
            fc.constant(place),
            fc.constantFrom(...wrongValuesFor(place.field)),
          ),
        )
        .map(([valid, place, wrong]) =>
          changedValue(operation, protocol, valid, place, wrong, {
            // ProtoJSON accepts numbers as strings, and enums as numbers.
            ...(protocol === "http" ? { form: "invalid", location: place.location } : { form: "either" }),
          }),
        );
    },
  },
  {
    name: "deep nesting",
    weight: 6,
    protocols,
    make: (operation, protocol) => {
      const deep = fc.constantFrom(
        `${"[".repeat(levels)}${"]".repeat(levels)}`,
        `${`{"a":`.repeat(levels)}1${"}".repeat(levels)}`,
      );
      const place = fc.constantFrom(undefined, ...structsIn(operation), ...settableIn(operation));
      return fc
        .tuple(validRequest(operation.rpc.input), place, deep)
        .map(([valid, place, verbatim]) =>
          place
            ? changedValue(
                operation,
                protocol,
                valid,
                place,
                { verbatim },
                { form: "invalid", location: place.location },
              )
            : changedJson(operation, protocol, valid, () => ({ verbatim }), { form: "invalid" }),
        );
    },
  },
  {
    name: "duplicate keys",
    protocols,
    make: (operation, protocol) => {
      return fc
        .constantFrom(...settableIn(operation))
        .chain((place) =>
          fc.tuple(validRequest(operation.rpc.input), fc.constant(place), validValue(place.field), fc.boolean()),
        )
        .map(([valid, place, first, isInside]) => {
          const { field, location } = place;
          const template = withValue(valid, place, first, sampleOf);
          const inside = { a: { b: [{ members: [["c", 1], ["d", 2], ["c", 1]] }] } }; // biome-ignore format: one line
          if (field.message?.typeName === StructSchema.typeName && isInside) {
            return changedValue(operation, protocol, template, place, inside, { form: "invalid", location });
          }
          const twice = (message: Request) => ({
            members: [[field.jsonName, message[field.jsonName] ?? 1], [field.jsonName, 1], ...Object.entries(message)],
          });
          const change = (request: Request) => withMessage(request, place, twice, sampleOf);
          return changedJson(operation, protocol, template, change, { form: "invalid", location });
        });
    },
  },
  {
    name: "out-of-range numbers",
    protocols,
    make: (operation, protocol) => {
      const numbers = [
        "1e400",
        "-1e400",
        "9007199254740993",
        "-0",
        "1e-400",
        "1E+2",
        "0.1e1",
        "123456789012345678901234567890",
      ];
      const place = fc.constantFrom(...settableIn(operation), ...structsIn(operation));
      return fc
        .tuple(validRequest(operation.rpc.input), place, fc.constantFrom(...numbers))
        .map(([valid, place, verbatim]) => {
          const { field, outer, location } = place;
          const isStruct = field.message?.typeName === StructSchema.typeName;
          const isInfinite = verbatim.includes("e400");
          // Inside a Struct, such a number would lose precision. Fields themselves have bounds.
          const losesPrecision =
            isStruct && ["9007199254740993", "1e-400", "123456789012345678901234567890"].includes(verbatim);
          const given = isStruct ? { a: [{ verbatim }] } : { verbatim };
          // An update mask is built before this field is added, and may not name it.
          const isUpdated = isStruct && (protocol === "http" || updateMaskOf(operation.rpc.input) === undefined);
          const intended = isUpdated &&
            outer.length === 0 && { intended: { [field.jsonName]: { a: [Number(verbatim)] } } };
          const isInvalid =
            isInfinite || losesPrecision || (!isStruct && field.scalar === ScalarType.STRING && protocol === "http");
          return changedValue(operation, protocol, valid, place, given, {
            ...(isInvalid ? { form: "invalid", location } : { form: isUpdated ? "valid" : "either", ...intended }),
          });
        });
    },
  },
  {
    name: "lone surrogates",
    protocols,
    make: (operation, protocol) => {
      const place = fc.constantFrom(...textsIn(operation));
      const unusual = fc.constantFrom("\ud800", "a\udfff", "\udc00\ud800", "\ud83d\ud83d\udddd");
      return fc.tuple(validRequest(operation.rpc.input), place, unusual).map(([valid, place, unusual]) => {
        const { field, location } = place;
        const given = field.message ? { [unusual]: unusual } : field.fieldKind === "list" ? [unusual] : unusual;
        return changedValue(operation, protocol, valid, place, given, { form: "invalid", location });
      });
    },
  },
  {
    name: "invalid UTF-8",
    protocols,
    make: (operation, protocol) => {
      const bytes = fc.constantFrom([0xff], [0xc3], [0xed, 0xa0, 0x80], [0xc0, 0x80], [0xf4, 0x90, 0x80, 0x80], [0x80]);
      const place = fc.constantFrom(...textsIn(operation));
      return fc.tuple(validRequest(operation.rpc.input), place, bytes).map(([valid, place, bytes]) => {
        const { field } = place;
        const marked = field.message ? { a: "@@@" } : field.fieldKind === "list" ? ["@@@"] : "@@@";
        const corrupt = (body: Buffer) => {
          const at = body.lastIndexOf("@@@");
          return Buffer.concat([body.subarray(0, at), Buffer.from(bytes), body.subarray(at + 3)]);
        };
        const template = withValue(valid, place, marked, sampleOf);
        return corrupted(operation, protocol, template, corrupt, { form: "invalid" });
      });
    },
  },
  {
    name: "unknown fields",
    protocols,
    make: (operation, protocol) => {
      const names = fc.oneof(
        fc.constantFrom(
          "__proto__",
          "constructor",
          "prototype",
          "toString",
          "hasOwnProperty",
          "$typeName",
          "$unknown",
          "",
        ),
        fc.string({ unit: anyCharacter, minLength: 1, maxLength: 200 }),
      );
      // A body that is the value of one field has no members beside it.
      const places = settableIn(operation).filter(
        ({ outer }) => outer.length > 0 || protocol !== "http" || bodyFieldOf(operation) === undefined,
      );
      return fc
        .tuple(validRequest(operation.rpc.input), fc.constantFrom(...places), names, fc.jsonValue())
        .filter(([, { field }, name]) => !field.parent.fields.some((each) => [each.jsonName, each.name].includes(name)))
        .map(([valid, place, name, value]) => {
          const add = (message: Request) => ({ ...message, ...Object.fromEntries([[name, value]]) });
          const change = (request: Request) => withMessage(request, place, add, sampleOf);
          return changedJson(operation, protocol, containing(valid, place), change, { form: "invalid" });
        });
    },
  },
  {
    name: "truncated JSON",
    protocols,
    make: (operation, protocol) =>
      fc.tuple(validRequest(operation.rpc.input), fc.nat()).map(([valid, at]) =>
        corrupted(operation, protocol, valid, (body) => body.subarray(0, 1 + (at % (body.length - 1))), {
          form: "invalid",
        }),
      ),
  },
  {
    name: "changed byte in JSON",
    protocols,
    make: (operation, protocol) =>
      fc
        .tuple(validRequest(operation.rpc.input), fc.nat(), fc.nat(255))
        .map(([valid, at, byte]) =>
          corrupted(
            operation,
            protocol,
            valid,
            (body) =>
              Buffer.concat([
                body.subarray(0, at % body.length),
                Buffer.of(byte),
                body.subarray((at % body.length) + 1),
              ]),
            { form: "either" },
          ),
        ),
  },
];

/** A draft that changes the JSON of a valid request in the encoding of its protocol. */
function changedJson(
  operation: Operation,
  protocol: ProtocolName,
  valid: Template,
  change: (json: Request) => unknown,
  expectation: Omit<Input, "raw">,
): Draft {
  return ({ credential, resolve }) => {
    const request = resolved(valid, resolve);
    const json = change(protocol === "http" ? request : toProtoJson(operation.rpc.input, request));
    const bodyField = protocol === "http" ? bodyFieldOf(operation) : undefined;
    const body =
      bodyField !== undefined && Object.hasOwn(Object(json), bodyField) ? (json as Request)[bodyField] : json;
    const raw = toRawRequest(protocol, operation, credential, Buffer.from(jsonText(body)));
    return { raw, ...located(protocol, operation, expectation) };
  };
}

/** The same with another value at one place. */
function changedValue(
  operation: Operation,
  protocol: ProtocolName,
  valid: Template,
  place: Place,
  value: unknown,
  expectation: Omit<Input, "raw">,
): Draft {
  const change = (request: Request) => withValue(request, place, value, sampleOf);
  return changedJson(operation, protocol, containing(valid, place), change, expectation);
}

/** A valid request that has the messages around a place. */
function containing(valid: Template, place: Place): Template {
  return withMessage(valid, place, (message) => message, sampleOf) as Template;
}

/** The fields that HTTP/JSON can set, at any depth. */
function settableIn({ rpc }: Operation): Place[] {
  return placesIn(rpc.input).filter(({ field }) => field.message?.typeName !== FieldMaskSchema.typeName);
}

/** The texts, lists of texts and Structs of a request, at any depth. */
function textsIn(operation: Operation): Place[] {
  const texts = placesIn(operation.rpc.input).filter(({ field }) => field.scalar === ScalarType.STRING);
  return [...texts, ...structsIn(operation)];
}

/** Values that are not of a field's type. */
function wrongValuesFor(field: DescField): unknown[] {
  const { fieldKind, scalar, message, enum: enumeration } = field;
  const isMessage = nestedMessageOf(field) !== undefined;
  if (fieldKind === "list" && isMessage) return [{}, { 0: {} }, "[]", [1], [null], [[{}]], ["{}"], true];
  if (fieldKind === "list") return ["keys.read", { 0: "keys.read" }, [1], [null], [["keys.read"]], true];
  if (scalar === ScalarType.STRING) return [1, true, {}, [], ["text"], { length: 1 }];
  if (scalar === ScalarType.BOOL) return ["true", 1, 0, {}, []];
  if (isMessage || message?.typeName === StructSchema.typeName) return [[], "{}", 1, true, [{}]];
  if (message?.typeName === TimestampSchema.typeName) return ["2099-01-01T00:00:00Z", 4070908800000.5, true, {}, []];
  if (enumeration !== undefined) return [1, "BECAUSE", "", {}, [], "UNSPECIFIED"];
  return ["5", 1.5, true, {}, [5], "", 2 ** 53];
}
