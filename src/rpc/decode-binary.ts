// Scans requests before they are decoded. fromBinary builds the whole message before anything in it can be counted, and
// names no field when a message is nested too deeply.
import { type DescField, type DescMessage, fromBinary, type Message } from "@bufbuild/protobuf";
import { BinaryReader, WireType } from "@bufbuild/protobuf/wire";
import { ListValueSchema, StructSchema } from "@bufbuild/protobuf/wkt";
import { type FieldError, invalidInput } from "../errors.js";
import {
  isWellKnown,
  maxDepth,
  maxFieldBytes,
  maxItemsOf,
  maxMembers,
  maxValues,
  smallBodyBytes,
  tooDeep,
  tooLarge,
  tooManyItems,
  tooManyMembers,
  tooManyValues,
} from "./message-limits.js";

/** Decodes a protobuf request. Throws `invalid_input` if it is malformed or exceeds the limits of a request. */
export function readBinary(schema: DescMessage, bytes: Uint8Array): Message {
  let excess: FieldError | undefined;
  try {
    if (bytes.length > smallBodyBytes) excess = findExcess(schema, bytes);
    if (excess === undefined) return fromBinary(schema, bytes);
  } catch {
    excess = { location: "body", message: `is not a valid ${schema.typeName} message` };
  }
  throw invalidInput([excess]);
}

/** A member of a JSON object takes four records, an item of a list two, any other value one. */
const maxRecords = 2 * maxValues;

/** Finds the first exceeded limit, in one pass that builds nothing. Throws if the bytes are not protobuf. */
function findExcess(schema: DescMessage, bytes: Uint8Array): FieldError | undefined {
  const reader = new BinaryReader(bytes);
  let records = 0;

  /** @param path the location of the message, with a final dot; empty for the request itself */
  function scanMessage(end: number, { fields }: Shape, path: string): FieldError | undefined {
    const items = new Map<number, number>();
    let members = 0;
    while (reader.pos < end) {
      const record = nextRecord(reader, end);
      const { field, maxItems, shape } = fields.get(record.number) ?? unknownField;
      const isItem = field?.fieldKind === "list" && maxItems !== undefined;
      const index = isItem ? (items.get(record.number) ?? 0) : undefined;
      if (index === undefined) {
        members += 1;
        if (members > maxMembers) return { location: path.slice(0, -1) || "body", message: tooManyMembers };
      } else {
        if (index === maxItems) return { location: path + field?.jsonName, message: tooManyItems(maxItems) };
        items.set(record.number, index + 1);
      }
      const excess = record.isNested && shape && scanField(record.end, shape, path + field?.jsonName, index);
      if (excess) return excess;
      records += 1;
      if (records > maxRecords) return { location: "body", message: tooManyValues };
      reader.pos = record.end;
    }
    return undefined;
  }

  function scanField(end: number, shape: Shape, name: string, index: number | undefined): FieldError | undefined {
    const location = index === undefined || !shape.isMessage ? name : `${name}[${index}]`;
    if (shape.isMessage) return scanMessage(end, shape, `${location}.`);
    const { count, excess } = scanValue(reader, end, shape);
    records += count;
    return excess === undefined ? undefined : { location, message: excess };
  }

  return scanMessage(bytes.length, shapeOf(schema), "");
}

/** Finds the limit that a single value exceeds. No JSON of `maxFieldBytes` characters has more records than that. */
function scanValue(reader: BinaryReader, end: number, shape: Shape): { count: number; excess: string | undefined } {
  let count = 0;

  function walk(end: number, { fields, isLevel }: Shape, level: number): string | undefined {
    const levels = isLevel ? level + 1 : level;
    if (levels > maxDepth) return tooDeep;
    while (reader.pos < end) {
      count += 1;
      if (count > maxFieldBytes) return tooLarge;
      const record = nextRecord(reader, end);
      const inner = record.isNested ? fields.get(record.number)?.shape : undefined;
      const excess = inner && walk(record.end, inner, levels);
      if (excess) return excess;
      reader.pos = record.end;
    }
    return undefined;
  }

  const excess = walk(end, shape, 0);
  return { count, excess };
}

/** Reads the tag of the next record. The reader is then at its content; setting `pos` to `end` skips it. */
function nextRecord(reader: BinaryReader, limit: number): { number: number; isNested: boolean; end: number } {
  const [number, type] = reader.tag();
  const isNested = type === WireType.LengthDelimited;
  let length = 0;
  if (isNested) length = reader.uint32();
  else if (type === WireType.Varint) reader.uint64();
  else if (type === WireType.Bit64) length = 8;
  else if (type === WireType.Bit32) length = 4;
  else throw new Error("groups are not supported"); // no message here has any, and one could hide any number of records
  const end = reader.pos + length;
  // Beyond the end of the enclosing message, this scan and the decoder would read different records.
  if (end > limit) throw new RangeError("a record exceeds its enclosing message");
  return { number, isNested, end };
}

/** The part of a descriptor that the scan needs: which records are messages, and how many are allowed. */
interface Shape {
  /** Whether it is a message of the API, not a single value. */
  readonly isMessage: boolean;
  /** Whether it counts as one level of JSON nesting: an object or a list. */
  readonly isLevel: boolean;
  readonly fields: ReadonlyMap<number, Child>;
}

interface Child {
  readonly field?: DescField;
  readonly maxItems?: number | undefined;
  readonly shape?: Shape | undefined;
}

const unknownField: Child = {};

const shapes = new WeakMap<DescMessage, Shape>();

/** A Struct contains itself, so its shape is registered before its fields are computed. */
function shapeOf(schema: DescMessage): Shape {
  const cached = shapes.get(schema);
  if (cached !== undefined) return cached;
  const fields = new Map<number, Child>();
  const isLevel = schema.typeName === StructSchema.typeName || schema.typeName === ListValueSchema.typeName;
  const shape = { isMessage: !isWellKnown(schema), isLevel, fields };
  shapes.set(schema, shape);
  for (const field of schema.fields) {
    const inner = field.message && shapeOf(field.message);
    const maxItems = shape.isMessage ? maxItemsOf(field) : undefined;
    // A map entry is a message with the key as field 1 and the value as field 2.
    const content = new Map([[2, { shape: inner }]]);
    const entry = field.fieldKind === "map" && { isMessage: false, isLevel: false, fields: content };
    fields.set(field.number, { field, maxItems, shape: entry || inner });
  }
  return shape;
}
