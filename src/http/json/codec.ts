// The JSON of the HTTP protocol. By hand, because it is not ProtoJSON: times are milliseconds, 64-bit counts are numbers,
// enums go without their prefix, and every mistake is named by its field. Codecs are compiled once, from descriptors;
// a field of a kind that no message has yet fails there, at start-up.
import { create, type DescEnum, type DescField, type DescMessage, type Message, ScalarType } from "@bufbuild/protobuf";
import { StructSchema, type Timestamp, TimestampSchema, timestampFromMs, timestampMs } from "@bufbuild/protobuf/wkt";
import { updateMaskOf } from "../../call/update-mask.js";
import { type FieldError, invalidInput, isEnough } from "../../errors.js";
import { maxItemsOf, tooManyItems } from "../../rpc/message-limits.js";

/** Reads a request message from parsed JSON; throws `invalid_input` with every bad field named. */
export type ReadMessage = (json: unknown) => Message;

/** Writes a response message as plain JSON. */
export type WriteMessage = (message: Message) => Record<string, unknown>;

/** Turns one JSON value into a field's value, or says what it must be. */
type ReadValue = (json: unknown) => unknown | MustBe;

class MustBe {
  constructor(readonly what: string) {}
}

export function compileReader(schema: DescMessage): ReadMessage {
  // HTTP has no update mask: which fields are given says the same, and `null` names a field that is to be cleared.
  const mask = updateMaskOf(schema);
  const readable = schema.fields.filter((field) => field !== mask?.field);
  const fields = new Map(readable.map((field) => [field.jsonName, { field, read: fieldReaderOf(field) }]));
  const names = [...fields.keys()].join(", ");

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
          message: names ? `is not a known field; there are ${names}` : "is not a known field",
        });
      } else if (given !== null) {
        put(members, known.field, known.read(given, errors), errors);
      }
    }
    if (errors.length > 0) throw invalidInput(errors);
    if (mask !== undefined) members[mask.field.localName] = { paths: changed };
    return create(schema, members);
  };
}

/** Reads a request message from a query string: the same fields, each given once, as text. */
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
    if (field.oneof !== undefined) throw new Error(`${field}: a oneof has no place in a response`);
    const write = writerOf(field);
    return [field.jsonName, field.localName, field.fieldKind === "list" ? eachOf(write) : write] as const;
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

/** Reads a whole field, and adds what is wrong with it, if anything is. */
type ReadField = (given: unknown, errors: FieldError[]) => unknown;

function fieldReaderOf(field: DescField): ReadField {
  const { jsonName } = field;
  const read = readerOf(field);
  if (field.fieldKind !== "list") return (given, errors) => readValue(jsonName, read, given, errors);
  const mostItems = maxItemsOf(field) ?? Number.POSITIVE_INFINITY;
  return (given, errors) => {
    if (Array.isArray(given) && given.length <= mostItems) {
      return given.map((item, index) => readValue(`${jsonName}[${index}]`, read, item, errors));
    }
    errors.push({ location: jsonName, message: Array.isArray(given) ? tooManyItems(mostItems) : "must be an array" });
    return undefined;
  };
}

function readValue(location: string, read: ReadValue, given: unknown, errors: FieldError[]): unknown {
  const value = read(given);
  if (!(value instanceof MustBe)) return value;
  errors.push({ location, message: `must be ${value.what}` });
  return undefined;
}

function put(members: Record<string, unknown>, field: DescField, value: unknown, errors: FieldError[]): void {
  const { oneof, localName, jsonName } = field;
  if (oneof === undefined) {
    members[localName] = value;
  } else if (members[oneof.localName] === undefined) {
    members[oneof.localName] = { case: localName, value };
  } else {
    const names = oneof.fields.map((member) => member.jsonName).join(", ");
    errors.push({ location: jsonName, message: `is one too many: only one of ${names} may be given` });
  }
}

const scalarReaders: Partial<Record<ScalarType, ReadValue>> = {
  [ScalarType.STRING]: (json) => (typeof json === "string" ? json : new MustBe("a string")),
  [ScalarType.BOOL]: (json) => (typeof json === "boolean" ? json : new MustBe("true or false")),
  [ScalarType.INT32]: (json) =>
    Number.isInteger(json) && Math.abs(Number(json)) < 2 ** 31 ? json : new MustBe("an integer"),
  [ScalarType.INT64]: (json) => (Number.isSafeInteger(json) ? BigInt(Number(json)) : new MustBe("an integer")),
};

const messageReaders: Record<string, ReadValue> = {
  [StructSchema.typeName]: (json) => (isObject(json) ? json : new MustBe("a JSON object")),
  [TimestampSchema.typeName]: (json) =>
    Number.isSafeInteger(json) ? timestampFromMs(Number(json)) : new MustBe("a time in Unix milliseconds, an integer"),
};

function readerOf(field: DescField): ReadValue {
  const reader =
    (field.enum && enumReader(field.enum)) ??
    (field.message && messageReaders[field.message.typeName]) ??
    (field.scalar && scalarReaders[field.scalar]);
  if (reader === undefined) throw new Error(`${field}: the gateway does not read this kind of field yet`);
  return reader;
}

/** The unspecified value is not for callers: leaving the field out says the same. */
function enumReader(descriptor: DescEnum): ReadValue {
  const values = new Map(descriptor.values.filter(({ number }) => number !== 0).map((v) => [v.localName, v.number]));
  const mustBe = new MustBe(`one of ${[...values.keys()].join(", ")}`);
  return (json) => (typeof json === "string" && values.has(json) ? values.get(json) : mustBe);
}

// biome-ignore lint/suspicious/noExplicitAny: each writer is only ever handed values of its own field.
type WriteValue = (value: any) => unknown;

const unchanged: WriteValue = (value) => value;

const messageWriters: Record<string, WriteValue> = {
  [StructSchema.typeName]: unchanged,
  [TimestampSchema.typeName]: (time: Timestamp) => timestampMs(time),
};

function writerOf(field: DescField): WriteValue {
  if (field.fieldKind === "map") throw new Error(`${field}: the gateway does not write maps yet`);
  if (field.enum !== undefined) return enumWriter(field.enum);
  if (field.message !== undefined) return messageWriters[field.message.typeName] ?? compileWriter(field.message);
  return field.scalar === ScalarType.INT64 ? (value: bigint) => Number(value) : unchanged;
}

function enumWriter(descriptor: DescEnum): WriteValue {
  return (number: number) => descriptor.value[number]?.localName;
}

function eachOf(write: WriteValue): WriteValue {
  return (values: unknown[]) => values.map(write);
}

function isObject(json: unknown): json is Record<string, unknown> {
  return typeof json === "object" && json !== null && !Array.isArray(json);
}
