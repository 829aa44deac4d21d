import { type DescField, ScalarType } from "@bufbuild/protobuf";
import { StructSchema, TimestampSchema } from "@bufbuild/protobuf/wkt";
import fc from "fast-check";
import { updateMaskOf } from "../../../src/call/update-mask.js";
import { toProtoJson } from "./encode.js";
import { anyCharacter, goodRequest, goodValue } from "./good-requests.js";
import { jsonText } from "./json-text.js";
import { type Draft, type Input, type Kind, spoilt } from "./kind.js";
import type { Operation } from "./operations.js";
import { type Request, resolved, type Template } from "./request.js";
import { structsIn, withField } from "./request-kinds.js";
import { type ProtocolName, sentTo } from "./sent.js";

const protocols: readonly ProtocolName[] = ["http", "connect"];
const levels = 10_000;

/** Bodies that are odd as JSON. */
export const jsonKinds: readonly Kind[] = [
  {
    name: "arbitrary JSON",
    protocols,
    make: (operation, protocol) =>
      fc
        .oneof(fc.jsonValue(), fc.object())
        .map((json) => written(operation, protocol, {}, () => json, { form: "either" })),
  },
  {
    name: "wrong type",
    protocols,
    make: (operation, protocol) => {
      const field = fc.constantFrom(...operation.rpc.input.fields.filter(isReadByHttp));
      return field
        .chain((field) =>
          fc.tuple(goodRequest(operation.rpc.input), fc.constant(field), fc.constantFrom(...wrongFor(field))),
        )
        .map(([good, field, wrong]) =>
          written(operation, protocol, good, (request) => withField(request, field, wrong), {
            // ProtoJSON reads numbers from texts, and enums from numbers.
            ...(protocol === "http" ? { form: "unsound", location: field.jsonName } : { form: "either" }),
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
      const field = fc.constantFrom(
        undefined,
        ...structsIn(operation),
        ...operation.rpc.input.fields.filter(isReadByHttp),
      );
      return fc.tuple(goodRequest(operation.rpc.input), field, deep).map(([good, field, verbatim]) =>
        written(
          operation,
          protocol,
          good,
          (request) => (field ? withField(request, field, { verbatim }) : { verbatim }),
          {
            form: "unsound",
            ...(field && { location: field.jsonName }),
          },
        ),
      );
    },
  },
  {
    name: "duplicate keys",
    protocols,
    make: (operation, protocol) => {
      const field = fc.constantFrom(...operation.rpc.input.fields.filter(isReadByHttp));
      return field
        .chain((field) =>
          fc.tuple(goodRequest(operation.rpc.input), fc.constant(field), goodValue(field), fc.boolean()),
        )
        .map(([good, field, first, isInside]) =>
          written(
            operation,
            protocol,
            withField(good, field, first),
            (request) => {
              const isStruct = field.message?.typeName === StructSchema.typeName;
              const inside = { a: { b: [{ members: [["c", 1], ["d", 2], ["c", 1]] }] } }; // biome-ignore format: one line
              const members = Object.entries(isStruct && isInside ? withField(request, field, inside) : request);
              return isStruct && isInside
                ? { members }
                : { members: [[field.jsonName, request[field.jsonName] ?? 1], [field.jsonName, 1], ...members] };
            },
            { form: "unsound", location: field.jsonName },
          ),
        );
    },
  },
  {
    name: "numbers beyond bounds",
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
      const field = fc.constantFrom(...operation.rpc.input.fields.filter(isReadByHttp), ...structsIn(operation));
      return fc
        .tuple(goodRequest(operation.rpc.input), field, fc.constantFrom(...numbers))
        .map(([good, field, verbatim]) => {
          const isStruct = field.message?.typeName === StructSchema.typeName;
          const isInfinite = verbatim.includes("e400");
          // Below a field, what would come back as another number; a field itself has bounds.
          const isAltered =
            isStruct && ["9007199254740993", "1e-400", "123456789012345678901234567890"].includes(verbatim);
          const given = isStruct ? { a: [{ verbatim }] } : { verbatim };
          // Where a mask says what is updated, it is made before this field is put in, and may not name it.
          const isUpdated = isStruct && (protocol === "http" || updateMaskOf(operation.rpc.input) === undefined);
          const meant = isUpdated && { meant: { [field.jsonName]: { a: [Number(verbatim)] } } };
          const isUnsound =
            isInfinite || isAltered || (!isStruct && field.scalar === ScalarType.STRING && protocol === "http");
          return written(operation, protocol, good, (request) => withField(request, field, given), {
            ...(isUnsound
              ? { form: "unsound", location: field.jsonName }
              : { form: isUpdated ? "sound" : "either", ...meant }),
          });
        });
    },
  },
  {
    name: "lone surrogates",
    protocols,
    make: (operation, protocol) => {
      const field = fc.constantFrom(...operation.rpc.input.fields.filter(isTextOrStruct));
      const odd = fc.constantFrom("\ud800", "a\udfff", "\udc00\ud800", "\ud83d\ud83d\udddd");
      return fc.tuple(goodRequest(operation.rpc.input), field, odd).map(([good, field, odd]) => {
        const given = field.message ? { [odd]: odd } : field.fieldKind === "list" ? [odd] : odd;
        return written(operation, protocol, good, (request) => withField(request, field, given), {
          form: "unsound",
          location: field.jsonName,
        });
      });
    },
  },
  {
    name: "invalid UTF-8",
    protocols,
    make: (operation, protocol) => {
      const bytes = fc.constantFrom([0xff], [0xc3], [0xed, 0xa0, 0x80], [0xc0, 0x80], [0xf4, 0x90, 0x80, 0x80], [0x80]);
      const field = fc.constantFrom(...operation.rpc.input.fields.filter(isTextOrStruct));
      return fc.tuple(goodRequest(operation.rpc.input), field, bytes).map(([good, field, bytes]) => {
        const marked = field.message ? { a: "@@@" } : field.fieldKind === "list" ? ["@@@"] : "@@@";
        const spoil = (body: Buffer) => {
          const at = body.lastIndexOf("@@@");
          return Buffer.concat([body.subarray(0, at), Buffer.from(bytes), body.subarray(at + 3)]);
        };
        return spoilt(operation, protocol, withField(good, field, marked), spoil, { form: "unsound" });
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
      return fc
        .tuple(goodRequest(operation.rpc.input), names, fc.jsonValue())
        .filter(([, name]) => !operation.rpc.input.fields.some((field) => [field.jsonName, field.name].includes(name)))
        .map(([good, name, value]) =>
          written(operation, protocol, good, (request) => ({ ...request, ...Object.fromEntries([[name, value]]) }), {
            form: "unsound",
          }),
        );
    },
  },
  {
    name: "cut JSON",
    protocols,
    make: (operation, protocol) =>
      fc.tuple(goodRequest(operation.rpc.input), fc.nat()).map(([good, at]) =>
        spoilt(operation, protocol, good, (body) => body.subarray(0, 1 + (at % (body.length - 1))), {
          form: "unsound",
        }),
      ),
  },
  {
    name: "a byte of JSON changed",
    protocols,
    make: (operation, protocol) =>
      fc
        .tuple(goodRequest(operation.rpc.input), fc.nat(), fc.nat(255))
        .map(([good, at, byte]) =>
          spoilt(
            operation,
            protocol,
            good,
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

/** A draft whose body is made from a good request, as the protocol writes it, by a change to its JSON. */
function written(
  operation: Operation,
  protocol: ProtocolName,
  good: Template,
  change: (json: Request) => unknown,
  more: Omit<Input, "sent">,
): Draft {
  return ({ credential, resolve }) => {
    const request = resolved(good, resolve);
    const json = change(protocol === "http" ? request : toProtoJson(operation.rpc.input, request));
    return { sent: sentTo(protocol, operation, credential, Buffer.from(jsonText(json))), ...more };
  };
}

function isReadByHttp({ message }: DescField): boolean {
  return (
    message === undefined || message.typeName === StructSchema.typeName || message.typeName === TimestampSchema.typeName
  );
}

function isTextOrStruct({ scalar, message }: DescField): boolean {
  return scalar === ScalarType.STRING || message?.typeName === StructSchema.typeName;
}

/** Values that are not of a field's type. */
function wrongFor({ fieldKind, scalar, message, enum: enumeration }: DescField): unknown[] {
  if (fieldKind === "list") return ["keys.read", { 0: "keys.read" }, [1], [null], [["keys.read"]], true];
  if (scalar === ScalarType.STRING) return [1, true, {}, [], ["text"], { length: 1 }];
  if (scalar === ScalarType.BOOL) return ["true", 1, 0, {}, []];
  if (message?.typeName === StructSchema.typeName) return [[], "{}", 1, true, [{}]];
  if (message?.typeName === TimestampSchema.typeName) return ["2099-01-01T00:00:00Z", 4070908800000.5, true, {}, []];
  if (enumeration !== undefined) return [1, "BECAUSE", "", {}, [], "UNSPECIFIED"];
  return ["5", 1.5, true, {}, [5], "", 2 ** 53];
}
