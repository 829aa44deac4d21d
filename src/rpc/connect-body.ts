import {
  type DescField,
  type DescMessage,
  fromBinary,
  fromJson,
  type JsonObject,
  type JsonValue,
  ScalarType,
} from "@bufbuild/protobuf";
import { type FieldError, invalidInput } from "../errors.js";

/** How a body is encoded: alone, or in a frame of gRPC-Web. */
export interface BodyFormat {
  readonly framed: boolean;
  readonly codec: "json" | "proto";
}

/**
 * Refuses a body that Connect could not decode, before Connect sees it: Connect's own refusal would name internal types
 * and carry none of our details. What is compressed is left to Connect, which bounds what it expands.
 */
export function refuseUndecodable(schema: DescMessage, { framed, codec }: BodyFormat, body: Buffer): void {
  const message = framed ? messageOf(body) : body;
  if (message === undefined) return;
  if (codec === "json") refuseBadJson(schema, message);
  else refuseBadBinary(schema, message);
}

function refuseBadJson(schema: DescMessage, body: Buffer): void {
  const json = parse(body);
  if (typeof json !== "object" || json === null || Array.isArray(json)) throw inBody("must be a JSON object");
  if (isReadable(schema, json)) return;
  const errors = Object.entries(json).flatMap(([name, value]) => mistakesIn(schema, name, value));
  throw errors.length > 0 ? invalidInput(errors) : inBody("has fields that exclude each other");
}

/**
 * Field by field, and item by item, mistakes are found all at once and by the names that the caller used. They are told
 * by the kind of the field: Connect's own words quote the value, and a secret may stand in the wrong field.
 */
function mistakesIn(schema: DescMessage, name: string, value: JsonValue): FieldError[] {
  const field = schema.fields.find(({ jsonName, name: protoName }) => name === jsonName || name === protoName);
  if (field === undefined) return [{ location: name, message: "is not a known field" }];
  const items = field.fieldKind === "list" && Array.isArray(value) ? value : [];
  const parts: [string, JsonValue][] = items.map((item, index) => [`${name}[${index}]`, [item]]);
  return (parts.length > 0 ? parts : [[name, value] as const])
    .filter(([, part]) => !isReadable(schema, { [name]: part }))
    .map(([location]) => ({ location, message: `cannot be read as ${kindOf(field)}` }));
}

function kindOf(field: DescField): string {
  const kind = field.message?.typeName ?? field.enum?.typeName;
  return kind ?? (field.scalar === undefined ? "documented" : ScalarType[field.scalar].toLowerCase());
}

function parse(body: Buffer): JsonValue {
  try {
    return JSON.parse(body.toString());
  } catch {
    throw inBody("is not valid JSON");
  }
}

function isReadable(schema: DescMessage, json: JsonObject): boolean {
  try {
    fromJson(schema, json);
    return true;
  } catch {
    return false;
  }
}

function refuseBadBinary(schema: DescMessage, bytes: Buffer): void {
  try {
    fromBinary(schema, bytes);
  } catch {
    throw inBody(`is not a ${schema.typeName} message`);
  }
}

/** gRPC-Web puts one byte of flags and four of length before the message; undefined if it is compressed or cut off. */
function messageOf(frame: Buffer): Buffer | undefined {
  if (frame.length < 5 || frame[0] !== 0) return undefined;
  return frame.subarray(5, 5 + frame.readUInt32BE(1));
}

function inBody(message: string) {
  return invalidInput([{ location: "body", message }]);
}
