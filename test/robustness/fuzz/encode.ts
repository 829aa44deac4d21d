// Encodes requests for each protocol. Written by hand, because the protobuf library of the service would not encode
// some test inputs, such as invalid UTF-8 or a Struct with ten thousand levels.
import { type DescField, type DescMessage, ScalarType } from "@bufbuild/protobuf";
import { BinaryWriter, WireType } from "@bufbuild/protobuf/wire";
import { StructSchema, TimestampSchema } from "@bufbuild/protobuf/wkt";
import { updateMaskOf } from "../../../src/call/update-mask.js";
import { nestedMessageOf } from "../../../src/rpc/message-limits.js";
import { maskPathsFor } from "../../support/clients/messages.js";
import type { Request } from "./request.js";

/** A request as a ProtoJSON value, for Connect. */
export function toProtoJson(schema: DescMessage, request: Request): Record<string, unknown> {
  const paths = maskPathsFor(schema, request);
  const members = Object.entries(request)
    .filter(([, given]) => given !== null)
    .map(([name, given]) => [name, protoJsonOf(fieldOf(schema, name), given)] as const);
  return Object.fromEntries(paths ? [...members, ["updateMask", paths.map(toCamelCase).join()]] : members);
}

function protoJsonOf(field: DescField, given: unknown): unknown {
  if (Array.isArray(given) && field.fieldKind === "list") return given.map((item) => protoJsonOfValue(field, item));
  return protoJsonOfValue(field, given);
}

function protoJsonOfValue(field: DescField, given: unknown): unknown {
  const { message, enum: enumeration } = field;
  const nested = nestedMessageOf(field);
  if (nested !== undefined) return toProtoJson(nested, given as Request);
  if (message?.typeName === TimestampSchema.typeName && typeof given === "number") return new Date(given).toISOString();
  return enumeration?.values.find(({ localName }) => localName === given)?.name ?? given;
}

function toCamelCase(path: string): string {
  return path.replace(/_(.)/g, (_, letter: string) => letter.toUpperCase());
}

/** A request as protobuf. A string field may be given as bytes. */
export function toProto(schema: DescMessage, request: Request): Buffer {
  const writer = new BinaryWriter();
  const mask = updateMaskOf(schema)?.field;
  const paths = maskPathsFor(schema, request);
  for (const [name, given] of Object.entries(request)) {
    const field = fieldOf(schema, name);
    for (const value of Array.isArray(given) && field.fieldKind === "list" ? given : [given]) {
      if (value !== null) writeField(writer, field, value);
    }
  }
  if (mask !== undefined && paths !== undefined) {
    writer.tag(mask.number, WireType.LengthDelimited).fork();
    for (const path of paths) writer.tag(1, WireType.LengthDelimited).string(path);
    writer.join();
  }
  return Buffer.from(writer.finish());
}

function writeField(writer: BinaryWriter, field: DescField, value: unknown): void {
  const { number, scalar, message, enum: enumeration } = field;
  const nested = nestedMessageOf(field);
  if (nested !== undefined) {
    writer.tag(number, WireType.LengthDelimited).bytes(toProto(nested, value as Request));
  } else if (scalar === ScalarType.STRING) {
    const bytes = typeof value === "string" ? Buffer.from(value) : (value as Uint8Array);
    writer.tag(number, WireType.LengthDelimited).bytes(bytes);
  } else if (message?.typeName === StructSchema.typeName) {
    writer.tag(number, WireType.LengthDelimited).bytes(toStruct(value as Record<string, unknown>));
  } else if (message?.typeName === TimestampSchema.typeName) {
    const ms = Number(value);
    const seconds = Math.floor(ms / 1_000);
    writer.tag(number, WireType.LengthDelimited).fork();
    writer.tag(1, WireType.Varint).int64(seconds);
    writer.tag(2, WireType.Varint).int32((ms - seconds * 1_000) * 1_000_000);
    writer.join();
  } else {
    const enumNumber = enumeration?.values.find(({ localName }) => localName === value)?.number;
    writer.tag(number, WireType.Varint).int64(enumNumber ?? Number(value));
  }
}

/** A JSON object as the bytes of a google.protobuf.Struct. */
function toStruct(json: Readonly<Record<string, unknown>>): Uint8Array {
  const writer = new BinaryWriter();
  for (const [key, value] of Object.entries(json)) {
    writer.tag(1, WireType.LengthDelimited).fork();
    writer.tag(1, WireType.LengthDelimited).string(key);
    writer.tag(2, WireType.LengthDelimited).bytes(toValue(value));
    writer.join();
  }
  return writer.finish();
}

function toValue(json: unknown): Uint8Array {
  const writer = new BinaryWriter();
  if (json === null) writer.tag(1, WireType.Varint).int32(0);
  else if (typeof json === "number") writer.tag(2, WireType.Bit64).double(json);
  else if (typeof json === "string") writer.tag(3, WireType.LengthDelimited).string(json);
  else if (typeof json === "boolean") writer.tag(4, WireType.Varint).bool(json);
  else if (!Array.isArray(json)) {
    writer.tag(5, WireType.LengthDelimited).bytes(toStruct(json as Record<string, unknown>));
  } else {
    writer.tag(6, WireType.LengthDelimited).fork();
    for (const item of json) writer.tag(1, WireType.LengthDelimited).bytes(toValue(item));
    writer.join();
  }
  return writer.finish();
}

function fieldOf(schema: DescMessage, name: string): DescField {
  const field = schema.fields.find(({ jsonName }) => jsonName === name);
  if (field === undefined) throw new Error(`${schema.typeName} has no field ${name}`);
  return field;
}
