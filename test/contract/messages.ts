import {
  create,
  type DescField,
  type DescMessage,
  type JsonValue,
  type Message,
  type MessageInitShape,
  toJson,
} from "@bufbuild/protobuf";
import { StructSchema, TimestampSchema, timestampFromMs } from "@bufbuild/protobuf/wkt";

/**
 * A request, written once in the names, times and enum names of HTTP, as the message that the other doors send. A time
 * or an enum may also be given as the message has it, to say what HTTP cannot.
 */
export function toRequestMessage(schema: DescMessage, request: Readonly<Record<string, unknown>>): Message {
  const members: Record<string, unknown> = {};
  for (const [name, given] of Object.entries(request)) {
    const field = schema.fields.find(({ jsonName }) => jsonName === name);
    if (field === undefined) throw new Error(`${schema.typeName} has no field ${name}: only HTTP can send one`);
    const value = toFieldValue(field, given);
    if (field.oneof === undefined) members[field.localName] = value;
    else members[field.oneof.localName] = { case: field.localName, value };
  }
  return create(schema, members as MessageInitShape<DescMessage>);
}

function toFieldValue({ message, enum: enumeration }: DescField, given: unknown): unknown {
  if (message?.typeName === TimestampSchema.typeName && typeof given === "number") return timestampFromMs(given);
  if (enumeration !== undefined && typeof given === "string") {
    return enumeration.values.find(({ localName }) => localName === given)?.number;
  }
  return given;
}

/** A response message in the form in which HTTP answers, made by way of ProtoJSON and not by the code under test. */
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
