import { type DescField, ScalarType } from "@bufbuild/protobuf";
import { StructSchema, TimestampSchema } from "@bufbuild/protobuf/wkt";
import fc from "fast-check";
import { updateMaskOf } from "../../../src/call/update-mask.js";
import { type ProtocolName, toRawRequest } from "../../support/clients/raw-request.js";
import { toProtoJson } from "./encode.js";
import { jsonText } from "./json-text.js";
import { corrupted, type Draft, type Input, type Kind } from "./kind.js";
import type { Operation } from "./operations.js";
import { type Request, resolved, type Template } from "./request.js";
import { structsIn, withField } from "./request-kinds.js";
import { anyCharacter, validRequest, validValue } from "./valid-requests.js";

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
      const field = fc.constantFrom(...operation.rpc.input.fields.filter(isSettableOverHttp));
      return field
        .chain((field) =>
          fc.tuple(validRequest(operation.rpc.input), fc.constant(field), fc.constantFrom(...wrongValuesFor(field))),
        )
        .map(([valid, field, wrong]) =>
          changedJson(operation, protocol, valid, (request) => withField(request, field, wrong), {
            // ProtoJSON accepts numbers as strings, and enums as numbers.
            ...(protocol === "http" ? { form: "invalid", location: field.jsonName } : { form: "either" }),
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
        ...operation.rpc.input.fields.filter(isSettableOverHttp),
      );
      return fc.tuple(validRequest(operation.rpc.input), field, deep).map(([valid, field, verbatim]) =>
        changedJson(
          operation,
          protocol,
          valid,
          (request) => (field ? withField(request, field, { verbatim }) : { verbatim }),
          {
            form: "invalid",
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
      const field = fc.constantFrom(...operation.rpc.input.fields.filter(isSettableOverHttp));
      return field
        .chain((field) =>
          fc.tuple(validRequest(operation.rpc.input), fc.constant(field), validValue(field), fc.boolean()),
        )
        .map(([valid, field, first, isInside]) =>
          changedJson(
            operation,
            protocol,
            withField(valid, field, first),
            (request) => {
              const isStruct = field.message?.typeName === StructSchema.typeName;
              const inside = { a: { b: [{ members: [["c", 1], ["d", 2], ["c", 1]] }] } }; // biome-ignore format: one line
              const members = Object.entries(isStruct && isInside ? withField(request, field, inside) : request);
              return isStruct && isInside
                ? { members }
                : { members: [[field.jsonName, request[field.jsonName] ?? 1], [field.jsonName, 1], ...members] };
            },
            { form: "invalid", location: field.jsonName },
          ),
        );
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
      const field = fc.constantFrom(...operation.rpc.input.fields.filter(isSettableOverHttp), ...structsIn(operation));
      return fc
        .tuple(validRequest(operation.rpc.input), field, fc.constantFrom(...numbers))
        .map(([valid, field, verbatim]) => {
          const isStruct = field.message?.typeName === StructSchema.typeName;
          const isInfinite = verbatim.includes("e400");
          // Inside a Struct, such a number would lose precision. Fields themselves have bounds.
          const losesPrecision =
            isStruct && ["9007199254740993", "1e-400", "123456789012345678901234567890"].includes(verbatim);
          const given = isStruct ? { a: [{ verbatim }] } : { verbatim };
          // An update mask is built before this field is added, and may not name it.
          const isUpdated = isStruct && (protocol === "http" || updateMaskOf(operation.rpc.input) === undefined);
          const intended = isUpdated && { intended: { [field.jsonName]: { a: [Number(verbatim)] } } };
          const isInvalid =
            isInfinite || losesPrecision || (!isStruct && field.scalar === ScalarType.STRING && protocol === "http");
          return changedJson(operation, protocol, valid, (request) => withField(request, field, given), {
            ...(isInvalid
              ? { form: "invalid", location: field.jsonName }
              : { form: isUpdated ? "valid" : "either", ...intended }),
          });
        });
    },
  },
  {
    name: "lone surrogates",
    protocols,
    make: (operation, protocol) => {
      const field = fc.constantFrom(...operation.rpc.input.fields.filter(isTextOrStruct));
      const unusual = fc.constantFrom("\ud800", "a\udfff", "\udc00\ud800", "\ud83d\ud83d\udddd");
      return fc.tuple(validRequest(operation.rpc.input), field, unusual).map(([valid, field, unusual]) => {
        const given = field.message ? { [unusual]: unusual } : field.fieldKind === "list" ? [unusual] : unusual;
        return changedJson(operation, protocol, valid, (request) => withField(request, field, given), {
          form: "invalid",
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
      return fc.tuple(validRequest(operation.rpc.input), field, bytes).map(([valid, field, bytes]) => {
        const marked = field.message ? { a: "@@@" } : field.fieldKind === "list" ? ["@@@"] : "@@@";
        const corrupt = (body: Buffer) => {
          const at = body.lastIndexOf("@@@");
          return Buffer.concat([body.subarray(0, at), Buffer.from(bytes), body.subarray(at + 3)]);
        };
        return corrupted(operation, protocol, withField(valid, field, marked), corrupt, { form: "invalid" });
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
        .tuple(validRequest(operation.rpc.input), names, fc.jsonValue())
        .filter(([, name]) => !operation.rpc.input.fields.some((field) => [field.jsonName, field.name].includes(name)))
        .map(([valid, name, value]) =>
          changedJson(
            operation,
            protocol,
            valid,
            (request) => ({ ...request, ...Object.fromEntries([[name, value]]) }),
            {
              form: "invalid",
            },
          ),
        );
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
    return { raw: toRawRequest(protocol, operation, credential, Buffer.from(jsonText(json))), ...expectation };
  };
}

function isSettableOverHttp({ message }: DescField): boolean {
  return (
    message === undefined || message.typeName === StructSchema.typeName || message.typeName === TimestampSchema.typeName
  );
}

function isTextOrStruct({ scalar, message }: DescField): boolean {
  return scalar === ScalarType.STRING || message?.typeName === StructSchema.typeName;
}

/** Values that are not of a field's type. */
function wrongValuesFor({ fieldKind, scalar, message, enum: enumeration }: DescField): unknown[] {
  if (fieldKind === "list") return ["keys.read", { 0: "keys.read" }, [1], [null], [["keys.read"]], true];
  if (scalar === ScalarType.STRING) return [1, true, {}, [], ["text"], { length: 1 }];
  if (scalar === ScalarType.BOOL) return ["true", 1, 0, {}, []];
  if (message?.typeName === StructSchema.typeName) return [[], "{}", 1, true, [{}]];
  if (message?.typeName === TimestampSchema.typeName) return ["2099-01-01T00:00:00Z", 4070908800000.5, true, {}, []];
  if (enumeration !== undefined) return [1, "BECAUSE", "", {}, [], "UNSPECIFIED"];
  return ["5", 1.5, true, {}, [5], "", 2 ** 53];
}
