// Scans requests before they are decoded. fromBinary builds the whole message before anything in it can be counted, and
// names no field when a message is nested too deeply.
import { type DescField, type DescMessage, fromBinary, type Message, ScalarType } from "@bufbuild/protobuf";
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
  repeated,
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
    excess = findExcess(schema, bytes);
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
    let items: Map<number, number> | undefined;
    let objects: Set<number> | undefined;
    let members = 0;
    while (reader.pos < end) {
      const record = nextRecord(reader, end, fields);
      const { field, maxItems, shape } = record.child;
      const isItem = field?.fieldKind === "list" && maxItems !== undefined;
      const index = isItem ? (items?.get(record.number) ?? 0) : undefined;
      if (shape?.isObject && field?.fieldKind === "message") {
        objects ??= new Set();
        if (objects.has(record.number)) return { location: path + field.jsonName, message: repeated };
        objects.add(record.number);
      }
      if (index === undefined) {
        members += 1;
        if (members > maxMembers) return { location: path.slice(0, -1) || "body", message: tooManyMembers };
      } else {
        if (index === maxItems) return { location: path + field?.jsonName, message: tooManyItems(maxItems) };
        items ??= new Map();
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
      const record = nextRecord(reader, end, fields);
      const inner = record.isNested ? record.child.shape : undefined;
      const excess = inner && walk(record.end, inner, levels);
      if (excess) return excess;
      reader.pos = record.end;
    }
    return undefined;
  }

  const excess = walk(end, shape, 0);
  return { count, excess };
}

interface RecordHead {
  readonly number: number;
  readonly child: Child;
  readonly isNested: boolean;
  readonly end: number;
}

/** Reads the tag of the next record. The reader is then at its content; setting `pos` to `end` skips it. */
function nextRecord(reader: BinaryReader, limit: number, fields: Shape["fields"]): RecordHead {
  const [number, type] = reader.tag();
  const child = fields.get(number) ?? unknownField;
  // fromBinary reads a known field by its declared type, whatever its record says, and would read other records than this scan.
  if ((child.wireTypes & (1 << type)) === 0) throw new Error("the record has another wire type than its field");
  const isNested = type === WireType.LengthDelimited;
  let length = 0;
  if (isNested) length = reader.uint32();
  else if (type === WireType.Varint) reader.uint64();
  else length = type === WireType.Bit64 ? 8 : 4;
  const end = reader.pos + length;
  // Beyond the end of the enclosing message, this scan and the decoder would read different records.
  if (end > limit) throw new RangeError("a record exceeds its enclosing message");
  return { number, child, isNested, end };
}

/** The part of a descriptor that the scan needs: which records are messages, and how many are allowed. */
interface Shape {
  /** Whether it is a message of the API, not a single value. */
  readonly isMessage: boolean;
  /** Whether it counts as one level of JSON nesting: an object or a list. */
  readonly isLevel: boolean;
  /** Whether fromBinary stores it as a plain object, which it converts to a message and back for each further record. */
  readonly isObject: boolean;
  readonly fields: ReadonlyMap<number, Child>;
}

interface Child {
  readonly field?: DescField;
  readonly maxItems?: number | undefined;
  readonly shape?: Shape | undefined;
  /** The permitted wire types, one bit for each. */
  readonly wireTypes: number;
}

const varint = 1 << WireType.Varint;
const bit64 = 1 << WireType.Bit64;
const bit32 = 1 << WireType.Bit32;
const lengthDelimited = 1 << WireType.LengthDelimited;

/** Without groups: no message here has any, and one could hide any number of records. */
const unknownField: Child = { wireTypes: varint | bit64 | bit32 | lengthDelimited };

/** The wire types of scalars that are not varints. */
const wireTypesByScalar: Readonly<Partial<Record<ScalarType, number>>> = {
  [ScalarType.STRING]: lengthDelimited,
  [ScalarType.BYTES]: lengthDelimited,
  [ScalarType.DOUBLE]: bit64,
  [ScalarType.FIXED64]: bit64,
  [ScalarType.SFIXED64]: bit64,
  [ScalarType.FLOAT]: bit32,
  [ScalarType.FIXED32]: bit32,
  [ScalarType.SFIXED32]: bit32,
};

const wireTypesOfScalar = (scalar: ScalarType) => wireTypesByScalar[scalar] ?? varint;

/** The wire types of a value of a field: of an item of a list, or of the value of a map entry. */
function wireTypesOfValue({ message, scalar }: DescField): number {
  if (message !== undefined) return lengthDelimited;
  return scalar === undefined ? varint : wireTypesOfScalar(scalar);
}

function wireTypesOf(field: DescField): number {
  if (field.fieldKind === "map") return lengthDelimited;
  // Numbers of a list may be packed.
  return field.fieldKind === "list" ? wireTypesOfValue(field) | lengthDelimited : wireTypesOfValue(field);
}

const shapes = new WeakMap<DescMessage, Shape>();

/** A Struct contains itself, so its shape is registered before its fields are computed. */
function shapeOf(schema: DescMessage): Shape {
  const cached = shapes.get(schema);
  if (cached !== undefined) return cached;
  const fields = new Map<number, Child>();
  const isLevel = schema.typeName === StructSchema.typeName || schema.typeName === ListValueSchema.typeName;
  const isObject = schema.typeName === StructSchema.typeName;
  const shape = { isMessage: !isWellKnown(schema), isLevel, isObject, fields };
  shapes.set(schema, shape);
  for (const field of schema.fields) {
    const inner = field.message && shapeOf(field.message);
    const maxItems = shape.isMessage ? maxItemsOf(field) : undefined;
    // A map entry is a message with the key as field 1 and the value as field 2.
    const entry = field.fieldKind === "map" && {
      isMessage: false,
      isLevel: false,
      isObject: false,
      fields: new Map<number, Child>([
        [1, { wireTypes: wireTypesOfScalar(field.mapKey) }],
        [2, { shape: inner, wireTypes: wireTypesOfValue(field) }],
      ]),
    };
    fields.set(field.number, { field, maxItems, shape: entry || inner, wireTypes: wireTypesOf(field) });
  }
  return shape;
}
