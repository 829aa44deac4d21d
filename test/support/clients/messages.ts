import {
  create,
  type DescField,
  type DescMessage,
  type JsonValue,
  type Message,
  type MessageInitShape,
  ScalarType,
  toJson,
} from "@bufbuild/protobuf";
import { FieldMaskSchema, StructSchema, TimestampSchema, timestampFromMs } from "@bufbuild/protobuf/wkt";

/**
 * Converts a request with HTTP's names, timestamps and enum names to the message that the other protocols send. A time
 * or an enum may also be given as the message has it, to express what HTTP cannot. `null` leaves a field unset. In an
 * update it also makes the mask name the given fields, which clears the field. So does an empty list, which has no
 * presence.
 */
export function toRequestMessage(schema: DescMessage, request: Readonly<Record<string, unknown>>): Message {
  const members: Record<string, unknown> = {};
  const fields = Object.entries(request).map(([name, given]) => ({ field: fieldOf(schema, name), given }));
  const mask = schema.fields.find(({ message }) => message?.typeName === FieldMaskSchema.typeName);
  if (mask !== undefined && fields.some(({ given }) => given === null || isEmptyList(given))) {
    const changed = fields.filter(({ field }) => !saysWhichResource(field));
    members[mask.localName] = { paths: changed.map(({ field }) => field.name) };
  }
  for (const { field, given } of fields) {
    if (given === null) continue;
    const value = toFieldValue(field, given);
    if (field.oneof === undefined) members[field.localName] = value;
    else members[field.oneof.localName] = { case: field.localName, value };
  }
  return create(schema, members as MessageInitShape<DescMessage>);
}

function fieldOf(schema: DescMessage, name: string): DescField {
  const field = schema.fields.find(({ jsonName }) => jsonName === name);
  if (field === undefined) throw new Error(`${schema.typeName} has no field ${name}: only HTTP can send one`);
  return field;
}

function isEmptyList(given: unknown): boolean {
  return Array.isArray(given) && given.length === 0;
}

/** Whether a field of an update request is not one that the update can change. */
function saysWhichResource({ name, oneof }: DescField): boolean {
  return name === "key_id" || oneof?.name === "reference";
}

function toFieldValue({ message, enum: enumeration, scalar }: DescField, given: unknown): unknown {
  if (message?.typeName === TimestampSchema.typeName && typeof given === "number") return timestampFromMs(given);
  if (enumeration !== undefined && typeof given === "string") {
    return enumeration.values.find(({ localName }) => localName === given)?.number;
  }
  if (scalar === ScalarType.INT64 && typeof given === "number") return BigInt(given);
  return given;
}

/** Converts a response message to HTTP's form, by ProtoJSON and not by the code under test. */
export function toComparable(schema: DescMessage, message: Message): Record<string, unknown> {
  return ofMessage(schema, toJson(schema, message, { alwaysEmitImplicit: true }));
}

function ofMessage(schema: DescMessage, json: JsonValue): Record<string, unknown> {
  const members = json as Record<string, JsonValue>;
  return Object.fromEntries(
    schema.fields
      .filter(({ jsonName }) => members[jsonName] !== undefined)
      .map((field) => [field.jsonName, ofField(field, members[field.jsonName] as JsonValue)]),
  );
}

function ofField(field: DescField, json: JsonValue): unknown {
  if (field.fieldKind === "list") return (json as JsonValue[]).map((item) => ofValue(field, item));
  return ofValue(field, json);
}

function ofValue({ message, enum: enumeration }: DescField, json: JsonValue): unknown {
  if (message?.typeName === TimestampSchema.typeName) return Date.parse(String(json));
  if (enumeration !== undefined) return enumeration.values.find(({ name }) => name === json)?.localName;
  if (message === undefined || message.typeName === StructSchema.typeName) return json;
  return ofMessage(message, json);
}
