// By hand, because fromBinary builds the whole message before anything in it can be counted, and names no field when a
// message is too deep.
import { type DescField, type DescMessage, fromBinary, type Message } from "@bufbuild/protobuf";
import { BinaryReader, WireType } from "@bufbuild/protobuf/wire";
import { ListValueSchema, StructSchema } from "@bufbuild/protobuf/wkt";
import { type FieldError, invalidInput } from "../errors.js";
import {
  maxDepth,
  maxFieldBytes,
  maxItemsOf,
  maxMembers,
  smallBody,
  tooDeep,
  tooLarge,
  tooManyItems,
  tooManyMembers,
} from "./message-limits.js";

/** Reads a request from protobuf; throws `invalid_input` if it is none, or is beyond the bounds of a request. */
export function readBinary(schema: DescMessage, bytes: Uint8Array): Message {
  let excess: FieldError | undefined;
  try {
    if (bytes.length > smallBody) excess = findExcess(schema, bytes);
    if (excess === undefined) return fromBinary(schema, bytes);
  } catch {
    excess = { location: "body", message: `is not a ${schema.typeName} message` };
  }
  throw invalidInput([excess]);
}

/** Finds what a request has too much of, in one pass that builds nothing; throws if it is not protobuf. */
function findExcess(schema: DescMessage, bytes: Uint8Array): FieldError | undefined {
  const reader = new BinaryReader(bytes);
  const { fields } = shapeOf(schema);
  const items = new Map<number, number>();
  let members = 0;
  while (reader.pos < bytes.length) {
    const record = nextRecord(reader, bytes.length);
    const { field, mostItems, shape } = fields.get(record.number) ?? unknown;
    const location = field?.jsonName ?? "body";
    if (field?.fieldKind === "list" && mostItems !== undefined) {
      const count = (items.get(record.number) ?? 0) + 1;
      if (count > mostItems) return { location, message: tooManyItems(mostItems) };
      items.set(record.number, count);
    } else {
      members += 1;
      if (members > maxMembers) return { location: "body", message: tooManyMembers };
    }
    const message = record.isNested && shape && findExcessWithin(reader, record.end, shape);
    if (message) return { location, message };
    reader.pos = record.end;
  }
  return undefined;
}

/** Says what a field has too much of: no JSON of `largestField` characters has more records than that. */
function findExcessWithin(reader: BinaryReader, end: number, shape: Shape): string | undefined {
  let records = 0;

  function walk(end: number, { fields, isLevel }: Shape, level: number): string | undefined {
    const levels = isLevel ? level + 1 : level;
    if (levels > maxDepth) return tooDeep;
    while (reader.pos < end) {
      records += 1;
      if (records > maxFieldBytes) return tooLarge;
      const record = nextRecord(reader, end);
      const inner = record.isNested ? fields.get(record.number)?.shape : undefined;
      const excess = inner && walk(record.end, inner, levels);
      if (excess) return excess;
      reader.pos = record.end;
    }
    return undefined;
  }

  return walk(end, shape, 0);
}

/** Reads the tag of the next record. The reader stands at its content then, which is skipped by going to its end. */
function nextRecord(reader: BinaryReader, limit: number): { number: number; isNested: boolean; end: number } {
  const [number, type] = reader.tag();
  const isNested = type === WireType.LengthDelimited;
  let length = 0;
  if (isNested) length = reader.uint32();
  else if (type === WireType.Varint) reader.uint64();
  else if (type === WireType.Bit64) length = 8;
  else if (type === WireType.Bit32) length = 4;
  else throw new Error("groups are in no message of ours"); // and a group could hide any number of records
  const end = reader.pos + length;
  // Whatever it is: behind the end, this and the decoder would not read the same.
  if (end > limit) throw new RangeError("a record is longer than what it is in");
  return { number, isNested, end };
}

/** What is needed of a descriptor here: which records are messages, and how many there may be. */
interface Shape {
  /** Whether it is one level of JSON: an object or a list. */
  readonly isLevel: boolean;
  readonly fields: ReadonlyMap<number, Child>;
}

interface Child {
  readonly field?: DescField;
  readonly mostItems?: number | undefined;
  readonly shape?: Shape | undefined;
}

const unknown: Child = {};

const shapes = new Map<string, Shape>();

/** Structs contain themselves, so a shape is known before its fields are. */
function shapeOf(schema: DescMessage): Shape {
  const known = shapes.get(schema.typeName);
  if (known !== undefined) return known;
  const fields = new Map<number, Child>();
  const isLevel = schema.typeName === StructSchema.typeName || schema.typeName === ListValueSchema.typeName;
  const shape = { isLevel, fields };
  shapes.set(schema.typeName, shape);
  const isRequest = schema.file.proto.package.startsWith("latchkey.");
  for (const field of schema.fields) {
    const inner = field.message && shapeOf(field.message);
    const mostItems = isRequest ? maxItemsOf(field) : undefined;
    // An entry of a map is a message of its key, 1, and its value, 2.
    const entry = field.fieldKind === "map" && { isLevel: false, fields: new Map([[2, { shape: inner }]]) };
    fields.set(field.number, { field, mostItems, shape: entry || inner });
  }
  return shape;
}
