// The JSON of the HTTP protocol. Written by hand, because it is not ProtoJSON: times are milliseconds, 64-bit counts
// are numbers, enum values have no prefix, and every error names its field. Codecs are compiled once, from descriptors.
// A kind of field that no message has yet fails to compile, at start-up.
import {
  create,
  type DescEnum,
  type DescField,
  type DescMessage,
  getOption,
  type Message,
  ScalarType,
} from "@bufbuild/protobuf";
import { StructSchema, type Timestamp, TimestampSchema, timestampFromMs, timestampMs } from "@bufbuild/protobuf/wkt";
import { null_if_unset } from "../../../gen/latchkey/v1/json_pb.js";
import { type UpdateMask, updateMaskOf } from "../../call/update-mask.js";
import { type FieldError, invalidInput, isEnough } from "../../errors.js";
import { memoizeEncoding } from "../../rpc/memoize-encoding.js";
import { maxItemsOf, nestedMessageOf, tooManyItems } from "../../rpc/message-limits.js";

/** Reads a request message from parsed JSON; throws `invalid_input`, which names every invalid field. */
export type ReadMessage = (json: unknown) => Message;

/** Encodes a response message as JSON. */
export type WriteMessage = (message: Message) => string;

/** Converts one JSON value to the value of a field, or returns the expected type. */
type ReadValue = (json: unknown) => unknown | TypeMismatch;

class TypeMismatch {
  constructor(readonly expected: string) {}
}

export function compileReader(schema: DescMessage): ReadMessage {
  const read = objectReaderOf(schema);
  return (json) => {
    if (!isObject(json)) throw invalidInput([{ location: "body", message: "must be a JSON object" }]);
    const errors: FieldError[] = [];
    const message = read(json, "", errors);
    if (message === undefined) throw invalidInput(errors);
    return message;
  };
}

/** Reads a request message from the value of one field, which is the whole body. */
export function compileFieldReader({ parent, jsonName }: DescField): ReadMessage {
  const read = compileReader(parent);
  return (json) => {
    if (json === null) throw invalidInput([{ location: "body", message: "must not be null" }]);
    return read({ [jsonName]: json });
  };
}

/** Reads a request message from a query string: the same fields, each at most once, as text. */
export function compileQueryReader(schema: DescMessage): ReadMessage {
  const read = compileReader(schema);
  const kinds = new Map(schema.fields.map((field) => [field.jsonName, field.scalar]));

  return (query) => {
    const entries = Object.entries(query as Record<string, string | string[]>).map(([name, given]) => {
      if (Array.isArray(given)) throw invalidInput([{ location: name, message: "must be given only once" }]);
      const isNumber = kinds.get(name) === ScalarType.INT32 && /^-?\d+$/.test(given);
      return [name, isNumber ? Number(given) : given];
    });
    return read(Object.fromEntries(entries));
  };
}

/** Encodes the fields of a message that are set. */
export function compileWriter(schema: DescMessage): WriteMessage {
  const fields = schema.fields.map((field) => {
    return { start: `${JSON.stringify(field.jsonName)}:`, write: compileFieldWriter(field) };
  });

  return (message) => {
    const members: string[] = [];
    for (const { start, write } of fields) {
      const value = write(message);
      if (value !== undefined) members.push(start + value);
    }
    // Joined, not concatenated: V8 would copy a memoized concatenation again with each response, piece by piece.
    return `{${members.join(",")}}`;
  };
}

/** Encodes one field of a message. Undefined if it is not set, unless the field has the option `null_if_unset`. */
export function compileFieldWriter(field: DescField): (message: Message) => string | undefined {
  if (field.oneof !== undefined) throw new Error(`${field}: a response cannot have a oneof`);
  const { localName } = field;
  const write = writerOf(field);
  const unset = getOption(field, null_if_unset) ? "null" : undefined;

  return (message) => {
    const members = message as unknown as Record<string, unknown>;
    const value = members[localName];
    return value === undefined ? unset : write(value);
  };
}

type JsonObject = Readonly<Record<string, unknown>>;

/** Reads a message, and adds the errors of its members. Their locations begin with the prefix, such as `credits.`. */
type ReadObject = (json: JsonObject, prefix: string, errors: FieldError[]) => Message | undefined;

function objectReaderOf(schema: DescMessage): ReadObject {
  // HTTP has no update mask: the members that are present form the mask, and `null` clears a field.
  const mask = updateMaskOf(schema);
  const readable = schema.fields.filter((field) => field !== mask?.field);
  const fields = new Map(readable.map((field) => [field.jsonName, { field, read: fieldReaderOf(field) }]));
  const knownNames = [...fields.keys()].join(", ");

  return (json, prefix, errors) => {
    const members: Record<string, unknown> = {};
    for (const name of Object.keys(json)) {
      if (isEnough(errors)) break;
      const given = json[name];
      const location = prefix + name;
      const known = fields.get(name);
      if (known === undefined) {
        errors.push({
          location,
          message: knownNames ? `is not a known field; the known fields are ${knownNames}` : "is not a known field",
        });
      } else if (given !== null) {
        setMember(members, known.field, known.read(given, location, errors), location, errors);
      }
    }
    if (errors.length > 0) return undefined;
    if (mask !== undefined) members[mask.field.localName] = { paths: changedPaths(json, readable, mask) };
    return create(schema, members);
  };
}

/** The paths of an update. If the members of a field can be changed one by one, each of them has its own path. */
function changedPaths(json: JsonObject, fields: readonly DescField[], { changeable, members }: UpdateMask): string[] {
  const paths = fields.flatMap(({ name, jsonName }) => {
    const given = json[jsonName];
    if (given === undefined) return [];
    const inner = given === null ? undefined : members.get(name);
    return inner === undefined
      ? name
      : inner.filter((member) => Object.hasOwn(given as object, member.jsonName)).map((each) => `${name}.${each.name}`);
  });
  return paths.filter((path) => changeable.has(path));
}

/** Reads a field or an item of a list, and adds its errors, if any. */
type ReadField = (given: unknown, location: string, errors: FieldError[]) => unknown;

function fieldReaderOf(field: DescField): ReadField {
  const nested = nestedMessageOf(field);
  const read = nested ? nestedReader(objectReaderOf(nested)) : valueReader(readerOf(field));
  if (field.fieldKind !== "list") return read;
  const maxItems = maxItemsOf(field) ?? Number.POSITIVE_INFINITY;
  return (given, location, errors) => {
    if (Array.isArray(given) && given.length <= maxItems) {
      return given.map((item, index) => read(item, `${location}[${index}]`, errors));
    }
    errors.push({ location, message: Array.isArray(given) ? tooManyItems(maxItems) : "must be an array" });
    return undefined;
  };
}

function nestedReader(read: ReadObject): ReadField {
  return (given, location, errors) => {
    if (isObject(given)) return read(given, `${location}.`, errors);
    errors.push({ location, message: "must be a JSON object" });
    return undefined;
  };
}

function valueReader(read: ReadValue): ReadField {
  return (given, location, errors) => {
    const value = read(given);
    if (!(value instanceof TypeMismatch)) return value;
    errors.push({ location, message: `must be ${value.expected}` });
    return undefined;
  };
}

function setMember(
  members: Record<string, unknown>,
  { oneof, localName }: DescField,
  value: unknown,
  location: string,
  errors: FieldError[],
): void {
  if (oneof === undefined) {
    members[localName] = value;
  } else if (members[oneof.localName] === undefined) {
    members[oneof.localName] = { case: localName, value };
  } else {
    const names = oneof.fields.map((member) => member.jsonName).join(", ");
    errors.push({ location, message: `conflicts with another field: set only one of ${names}` });
  }
}

const scalarReaders: Partial<Record<ScalarType, ReadValue>> = {
  [ScalarType.STRING]: (json) => (typeof json === "string" ? json : new TypeMismatch("a string")),
  [ScalarType.BOOL]: (json) => (typeof json === "boolean" ? json : new TypeMismatch("true or false")),
  [ScalarType.INT32]: (json) =>
    Number.isInteger(json) && Math.abs(Number(json)) < 2 ** 31 ? json : new TypeMismatch("an integer"),
  [ScalarType.INT64]: (json) => (Number.isSafeInteger(json) ? BigInt(Number(json)) : new TypeMismatch("an integer")),
};

const messageReaders: Record<string, ReadValue> = {
  [StructSchema.typeName]: (json) => (isObject(json) ? json : new TypeMismatch("a JSON object")),
  [TimestampSchema.typeName]: (json) =>
    Number.isSafeInteger(json)
      ? timestampFromMs(Number(json))
      : new TypeMismatch("a time in Unix milliseconds, an integer"),
};

function readerOf(field: DescField): ReadValue {
  const reader =
    (field.enum && enumReader(field.enum)) ??
    (field.message && messageReaders[field.message.typeName]) ??
    (field.scalar && scalarReaders[field.scalar]);
  if (reader === undefined) throw new Error(`${field}: the gateway cannot read this kind of field yet`);
  return reader;
}

/** Refuses the unspecified value: callers omit the field instead. */
function enumReader(descriptor: DescEnum): ReadValue {
  const values = new Map(descriptor.values.filter(({ number }) => number !== 0).map((v) => [v.localName, v.number]));
  const mismatch = new TypeMismatch(`one of ${[...values.keys()].join(", ")}`);
  return (json) => (typeof json === "string" && values.has(json) ? values.get(json) : mismatch);
}

// biome-ignore lint/suspicious/noExplicitAny: each writer receives only values of its own field.
type WriteValue = (value: any) => string;

const scalarWriters: Partial<Record<ScalarType, WriteValue>> = {
  [ScalarType.STRING]: JSON.stringify,
  [ScalarType.BOOL]: String,
  [ScalarType.INT32]: String,
  [ScalarType.INT64]: String,
};

const messageWriters: Record<string, WriteValue> = {
  [StructSchema.typeName]: JSON.stringify,
  [TimestampSchema.typeName]: (time: Timestamp) => String(timestampMs(time)),
};

/** Parts of a response that are frozen, such as the identity of a cached key, are encoded only once. */
function writerOf(field: DescField): WriteValue {
  if (field.fieldKind === "list") return memoizeEncoding(listWriter(itemWriterOf(field)));
  return field.fieldKind === "message" ? memoizeEncoding(itemWriterOf(field)) : itemWriterOf(field);
}

function itemWriterOf(field: DescField): WriteValue {
  if (field.fieldKind === "map") throw new Error(`${field}: the gateway cannot write maps yet`);
  const writer =
    (field.enum && enumWriter(field.enum)) ??
    (field.message && (messageWriters[field.message.typeName] ?? compileWriter(field.message))) ??
    (field.scalar && scalarWriters[field.scalar]);
  if (writer === undefined) throw new Error(`${field}: the gateway cannot write this kind of field yet`);
  return writer;
}

function enumWriter(descriptor: DescEnum): WriteValue {
  const names = new Map(descriptor.values.map(({ number, localName }) => [number, JSON.stringify(localName)]));
  return (number: number) => names.get(number) ?? "null";
}

function listWriter(write: WriteValue): WriteValue {
  return (values: unknown[]) => `[${values.map((value) => write(value)).join(",")}]`;
}

function isObject(json: unknown): json is JsonObject {
  return typeof json === "object" && json !== null && !Array.isArray(json);
}
