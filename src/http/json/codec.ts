// The JSON of the HTTP protocol. Written by hand, because it is not ProtoJSON: times are milliseconds, 64-bit counts
// are numbers, enum values have no prefix, and every error names its field. Codecs are compiled once, from descriptors.
// A kind of field that no message has yet fails to compile, at start-up.
import { create, type DescEnum, type DescField, type DescMessage, type Message, ScalarType } from "@bufbuild/protobuf";
import { StructSchema, type Timestamp, TimestampSchema, timestampFromMs, timestampMs } from "@bufbuild/protobuf/wkt";
import { updateMaskOf } from "../../call/update-mask.js";
import { type FieldError, invalidInput, isEnough } from "../../errors.js";
import { maxItemsOf, tooManyItems } from "../../rpc/message-limits.js";

/** Reads a request message from parsed JSON; throws `invalid_input`, which names every invalid field. */
export type ReadMessage = (json: unknown) => Message;

/** Writes a response message as plain JSON. */
export type WriteMessage = (message: Message) => Record<string, unknown>;

/** Converts one JSON value to the value of a field, or returns the expected type. */
type ReadValue = (json: unknown) => unknown | TypeMismatch;

class TypeMismatch {
  constructor(readonly expected: string) {}
}

export function compileReader(schema: DescMessage): ReadMessage {
  // HTTP has no update mask: the fields that are present form the mask, and `null` clears a field.
  const mask = updateMaskOf(schema);
  const readable = schema.fields.filter((field) => field !== mask?.field);
  const fields = new Map(readable.map((field) => [field.jsonName, { field, read: fieldReaderOf(field) }]));
  const knownNames = [...fields.keys()].join(", ");

  return (json) => {
    if (!isObject(json)) throw invalidInput([{ location: "body", message: "must be a JSON object" }]);
    const errors: FieldError[] = [];
    const members: Record<string, unknown> = {};
    const changed: string[] = [];
    for (const name of Object.keys(json)) {
      if (isEnough(errors)) break;
      const given = json[name];
      const known = fields.get(name);
      if (known !== undefined && mask?.changeable.has(known.field.name)) changed.push(known.field.name);
      if (known === undefined) {
        errors.push({
          location: name,
          message: knownNames ? `is not a known field; the known fields are ${knownNames}` : "is not a known field",
        });
      } else if (given !== null) {
        setMember(members, known.field, known.read(given, errors), errors);
      }
    }
    if (errors.length > 0) throw invalidInput(errors);
    if (mask !== undefined) members[mask.field.localName] = { paths: changed };
    return create(schema, members);
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

export function compileWriter(schema: DescMessage): WriteMessage {
  const fields = schema.fields.map((field) => {
    if (field.oneof !== undefined) throw new Error(`${field}: a response cannot have a oneof`);
    const write = writerOf(field);
    return [field.jsonName, field.localName, field.fieldKind === "list" ? listWriter(write) : write] as const;
  });

  return (message) => {
    const members = message as unknown as Record<string, unknown>;
    const json: Record<string, unknown> = {};
    for (const [jsonName, localName, write] of fields) {
      const value = members[localName];
      if (value !== undefined) json[jsonName] = write(value);
    }
    return json;
  };
}

/** Reads a whole field, and adds its errors, if any. */
type ReadField = (given: unknown, errors: FieldError[]) => unknown;

function fieldReaderOf(field: DescField): ReadField {
  const { jsonName } = field;
  const read = readerOf(field);
  if (field.fieldKind !== "list") return (given, errors) => readValue(jsonName, read, given, errors);
  const maxItems = maxItemsOf(field) ?? Number.POSITIVE_INFINITY;
  return (given, errors) => {
    if (Array.isArray(given) && given.length <= maxItems) {
      return given.map((item, index) => readValue(`${jsonName}[${index}]`, read, item, errors));
    }
    errors.push({ location: jsonName, message: Array.isArray(given) ? tooManyItems(maxItems) : "must be an array" });
    return undefined;
  };
}

function readValue(location: string, read: ReadValue, given: unknown, errors: FieldError[]): unknown {
  const value = read(given);
  if (!(value instanceof TypeMismatch)) return value;
  errors.push({ location, message: `must be ${value.expected}` });
  return undefined;
}

function setMember(members: Record<string, unknown>, field: DescField, value: unknown, errors: FieldError[]): void {
  const { oneof, localName, jsonName } = field;
  if (oneof === undefined) {
    members[localName] = value;
  } else if (members[oneof.localName] === undefined) {
    members[oneof.localName] = { case: localName, value };
  } else {
    const names = oneof.fields.map((member) => member.jsonName).join(", ");
    errors.push({ location: jsonName, message: `conflicts with another field: set only one of ${names}` });
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
type WriteValue = (value: any) => unknown;

const unchanged: WriteValue = (value) => value;

const messageWriters: Record<string, WriteValue> = {
  [StructSchema.typeName]: unchanged,
  [TimestampSchema.typeName]: (time: Timestamp) => timestampMs(time),
};

function writerOf(field: DescField): WriteValue {
  if (field.fieldKind === "map") throw new Error(`${field}: the gateway cannot write maps yet`);
  if (field.enum !== undefined) return enumWriter(field.enum);
  if (field.message !== undefined) return messageWriters[field.message.typeName] ?? compileWriter(field.message);
  return field.scalar === ScalarType.INT64 ? (value: bigint) => Number(value) : unchanged;
}

function enumWriter(descriptor: DescEnum): WriteValue {
  return (number: number) => descriptor.value[number]?.localName;
}

function listWriter(write: WriteValue): WriteValue {
  return (values: unknown[]) => values.map(write);
}

function isObject(json: unknown): json is Record<string, unknown> {
  return typeof json === "object" && json !== null && !Array.isArray(json);
}
