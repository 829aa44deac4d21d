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
import { StructSchema, TimestampSchema, timestampFromMs } from "@bufbuild/protobuf/wkt";
import { CreditsSchema } from "../../../gen/latchkey/v1/credits_pb.js";
import { updateMaskOf } from "../../../src/call/update-mask.js";
import { nestedMessageOf } from "../../../src/rpc/message-limits.js";

/**
 * Converts a request with HTTP's names, timestamps and enum names to the message that the other protocols send. A time
 * or an enum may also be given as the message has it, to express what HTTP cannot. `null` leaves a field unset. In an
 * update it also makes the mask name the given fields, which clears the field. So does an empty list, which has no
 * presence. If the members of a field can be changed one by one, the mask names the given members.
 */
export function toRequestMessage(schema: DescMessage, request: Readonly<Record<string, unknown>>): Message {
  const members: Record<string, unknown> = {};
  const fields = Object.entries(request).map(([name, given]) => ({ field: fieldOf(schema, name), given }));
  const paths = maskPathsFor(schema, request);
  if (paths !== undefined) members["updateMask"] = { paths };
  for (const { field, given } of fields) {
    if (given === null) continue;
    const value = toFieldValue(field, given);
    if (field.oneof === undefined) members[field.localName] = value;
    else members[field.oneof.localName] = { case: field.localName, value };
  }
  return create(schema, members as MessageInitShape<DescMessage>);
}

/**
 * The body of a request over HTTP. If it is the value of one field, a request without that field stays as it is, which
 * the service refuses.
 */
export function toBody(request: Readonly<Record<string, unknown>>, bodyField: string | undefined): unknown {
  if (bodyField === undefined) return request;
  return Object.keys(request).length === 0 ? [] : (request[bodyField] ?? request);
}

/** The paths that the update mask of a request must name; undefined if the request needs no mask. */
export function maskPathsFor(schema: DescMessage, request: Readonly<Record<string, unknown>>): string[] | undefined {
  const mask = updateMaskOf(schema);
  if (mask === undefined) return undefined;
  const changes = Object.entries(request).flatMap(([jsonName, given]) => {
    const { name } = fieldOf(schema, jsonName);
    const members = given === null ? undefined : mask.members.get(name);
    if (members === undefined) return [{ path: name, given }];
    return Object.entries(given as object).map(([memberName, value]) => {
      const member = members.find((each) => each.jsonName === memberName);
      return { path: `${name}.${member?.name}`, given: value };
    });
  });
  const isNeeded = changes.some(({ given }) => given === null || isEmptyList(given));
  return isNeeded ? changes.map(({ path }) => path).filter((path) => mask.changeable.has(path)) : undefined;
}

function fieldOf(schema: DescMessage, name: string): DescField {
  const field = schema.fields.find(({ jsonName }) => jsonName === name);
  if (field === undefined) throw new Error(`${schema.typeName} has no field ${name}: only HTTP can send one`);
  return field;
}

function isEmptyList(given: unknown): boolean {
  return Array.isArray(given) && given.length === 0;
}

function toFieldValue(field: DescField, given: unknown): unknown {
  const { message, enum: enumeration, scalar } = field;
  const nested = nestedMessageOf(field);
  if (Array.isArray(given)) return nested ? given.map((item) => toRequestMessage(nested, item)) : given;
  if (nested !== undefined) return toRequestMessage(nested, given as Readonly<Record<string, unknown>>);
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
  // Over HTTP, the credits of a key that needs none have `remaining: null`.
  const unlimited = schema.typeName === CreditsSchema.typeName && members["remaining"] === undefined;
  const found = Object.fromEntries(
    schema.fields
      .filter(({ jsonName }) => members[jsonName] !== undefined)
      .map((field) => [field.jsonName, ofField(field, members[field.jsonName] as JsonValue)]),
  );
  return unlimited ? { ...found, remaining: null } : found;
}

function ofField(field: DescField, json: JsonValue): unknown {
  if (field.fieldKind === "list") return (json as JsonValue[]).map((item) => ofValue(field, item));
  return ofValue(field, json);
}

function ofValue({ message, enum: enumeration, scalar }: DescField, json: JsonValue): unknown {
  if (message?.typeName === TimestampSchema.typeName) return Date.parse(String(json));
  if (enumeration !== undefined) return enumeration.values.find(({ name }) => name === json)?.localName;
  if (scalar === ScalarType.INT64) return Number(json);
  if (message === undefined || message.typeName === StructSchema.typeName) return json;
  return ofMessage(message, json);
}
