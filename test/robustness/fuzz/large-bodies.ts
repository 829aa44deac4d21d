import { type DescField, ScalarType } from "@bufbuild/protobuf";
import { BinaryWriter, WireType } from "@bufbuild/protobuf/wire";
import { FieldMaskSchema, StructSchema, TimestampSchema } from "@bufbuild/protobuf/wkt";
import { nestedMessageOf } from "../../../src/rpc/message-limits.js";
import type { ProtocolName } from "../../support/clients/raw-request.js";
import { bodyFieldOf, type Operation } from "./operations.js";

/** A body of the maximum size that costs a parser without limits as much work as possible. */
export interface LargeBody {
  readonly name: string;
  /** Returns at most this many bytes. */
  make(bytes: number): Buffer;
  /** The location that the error must name. */
  readonly location: string;
}

/** The large bodies for an operation, in the encoding of this protocol. */
export function largeBodies(operation: Operation, protocol: ProtocolName): LargeBody[] {
  const isJson = protocol === "http" || protocol === "connect";
  const fields = operation.rpc.input.fields.filter((field) => protocol !== "http" || !isMask(field));
  const bodyField = protocol === "http" ? bodyFieldOf(operation) : undefined;
  const bodies = [
    ...(isJson ? manyUnknown : manyUnknownOfProtobuf),
    ...fields.flatMap((field) =>
      (isJson ? jsonFillings(field, field.jsonName === bodyField) : protoFillings(field)).map(
        ({ name, make, location = field.jsonName }): LargeBody => ({ name, make, location }),
      ),
    ),
  ];
  // A body that is the value of one field has no names.
  return bodyField === undefined ? bodies : bodies.map((body) => ({ ...body, location: "body" }));
}

interface Filling {
  readonly name: string;
  make(bytes: number): Buffer;
  /** The location that the error must name; by default the field. */
  readonly location?: string;
}

const manyUnknown: readonly LargeBody[] = [
  { name: "many unknown fields", make: (bytes) => listed("{", (index) => `"x${index}":1`, "}", bytes), location: "" },
  { name: "a number of many zeros", make: (bytes) => Buffer.from(`{"x":${"0".repeat(bytes - 7)}1}`), location: "x" },
  { name: "a number of many digits", make: (bytes) => Buffer.from(`{"x":1${"0".repeat(bytes - 8)}1}`), location: "x" },
  { name: "a deep list in place of a body", make: (bytes) => nested("", "[", "", "]", "", bytes), location: "body" },
  { name: "a list in place of a body", make: (bytes) => listed("[", () => "1", "]", bytes), location: "body" },
];

const manyUnknownOfProtobuf: readonly LargeBody[] = [
  { name: "many unknown numbers", make: (bytes) => repeated(Buffer.of(0xf8, 0x7f, 0), bytes), location: "body" },
  { name: "many unknown messages", make: (bytes) => repeated(Buffer.of(0xfa, 0x7f, 0), bytes), location: "body" },
  {
    name: "many groups",
    make: (bytes) => repeated(Buffer.of(0xfb, 0x7f, 0x08, 0, 0xfc, 0x7f), bytes),
    location: "body",
  },
];

/** @param isBody whether the value of the field is the whole body */
function jsonFillings(field: DescField, isBody: boolean): Filling[] {
  const [before, after] = isBody ? ["", ""] : [`{"${field.jsonName}":`, "}"];
  const list = (name: string, item: (index: number) => string): Filling => ({
    name,
    make: (bytes) => listed(`${before}[`, item, `]${after}`, bytes),
  });
  const deep = (name: string, begin: string, middle: string, end: string): Filling => ({
    name,
    make: (bytes) => nested(before, begin, middle, end, after, bytes),
  });
  const text = (name: string, part: string): Filling => ({
    name,
    make: (bytes) => listed(`${before}"`, () => part, `"${after}`, bytes, ""),
  });
  if (field.message?.typeName === StructSchema.typeName) {
    const inside = (name: string, item: string): Filling => ({
      name,
      make: (bytes) => listed(`{"${field.jsonName}":{"a":[`, () => item, "]}}", bytes),
    });
    return [
      {
        name: "an object of many members",
        make: (bytes) => listed(`{"${field.jsonName}":{`, (index) => `"${index.toString(36)}":1`, "}}", bytes),
      },
      inside("a list of numbers in an object", "1"),
      inside("a list of long numbers in an object", "0.12345678901234567e-9"),
      inside("a list of empty objects in an object", "{}"),
      inside("a list of small objects in an object", `{"a":1}`),
      deep("a deep object", `{"a":`, "1", "}"),
      deep("a deep list in an object", `{"a":[`, "1", "]}"),
      deep("a deep list in place of an object", "[", "1", "]"),
    ];
  }
  if (nestedMessageOf(field) !== undefined && field.fieldKind === "list") {
    const lists = `{"x":[${Array(800).fill("[]").join()}]}`;
    return [
      list("a list of wrong items", () => "1"),
      list("a list of empty messages", () => "{}"),
      list("a list of small messages", () => `{"a":1}`),
      list("a list of lists of messages", () => "[{}]"),
      { ...list("a list of messages with lists", () => lists), location: "" }, // too many messages, or too many lists
      deep("a deep list in place of a list of messages", "[", "", "]"),
    ];
  }
  if (field.fieldKind === "list") {
    return [
      list("a list of wrong items", () => "1"),
      list("a list of empty items", () => `""`),
      list("a list of the same item", () => `"a.b"`),
      list("a list of malformed items", (index) => `"!${index}"`),
      list("a list of empty objects", () => "{}"),
      list("a list of empty lists", () => "[]"),
    ];
  }
  return [
    list("a list in place of a value", () => "1"),
    deep("a deep object in place of a value", `{"a":`, "1", "}"),
    ...(field.scalar === ScalarType.STRING || isMask(field)
      ? [text("a long text", "x"), text("a long text of names", "a.b,"), text("a long text of parentheses", "(")]
      : []),
  ];
}

function protoFillings(field: DescField): Filling[] {
  const within = (content: (bytes: number) => Buffer) => (bytes: number) => record(field.number, content(bytes - 8));
  if (field.message?.typeName === StructSchema.typeName) {
    const inList = (item: Buffer) => within((bytes) => member(record(6, repeated(record(1, item), bytes - 20))));
    return [
      { name: "an object of many members", make: within((bytes) => gathered(manyMembers, bytes)) },
      { name: "an object of many empty members", make: within((bytes) => repeated(record(1, Buffer.alloc(0)), bytes)) },
      { name: "a list of empty values in an object", make: inList(Buffer.alloc(0)) },
      { name: "a list of nulls in an object", make: inList(Buffer.of(0x08, 0)) },
      { name: "a list of empty objects in an object", make: inList(record(5, Buffer.alloc(0))) },
      {
        name: "a value repeated many times",
        make: within((bytes) => member(repeated(Buffer.of(8, 0), bytes - 20))),
      },
      { name: "a deep object", make: within((bytes) => deepened((inner) => member(record(5, inner)), bytes)) },
      {
        name: "a deep list in an object",
        make: within((bytes) =>
          member(
            record(
              6,
              deepened((inner) => record(1, record(6, inner)), bytes - 20),
            ),
          ),
        ),
      },
    ];
  }
  if (nestedMessageOf(field) !== undefined) {
    const messages = (content: Buffer) => (bytes: number) => repeated(record(field.number, content), bytes);
    if (field.fieldKind === "list") return [{ name: "a list of empty messages", make: messages(Buffer.alloc(0)) }];
    return [
      { name: "a message of many members", make: within((bytes) => repeated(Buffer.of(0xf8, 0x7f, 0), bytes)) },
      { name: "a message repeated many times", make: messages(Buffer.alloc(0)), location: "body" },
    ];
  }
  if (isMask(field)) {
    return [
      { name: "a mask of empty paths", make: within((bytes) => repeated(record(1, Buffer.alloc(0)), bytes)) },
      { name: "a mask of one path", make: within((bytes) => repeated(record(1, Buffer.from("name")), bytes)) },
    ];
  }
  if (field.message?.typeName === TimestampSchema.typeName) {
    return [{ name: "a time repeated many times", make: within((bytes) => repeated(Buffer.of(8, 0), bytes)) }];
  }
  if (field.fieldKind === "list") {
    const items = (item: Buffer) => (bytes: number) => repeated(record(field.number, item), bytes);
    return [
      { name: "a list of empty items", make: items(Buffer.alloc(0)) },
      { name: "a list of the same item", make: items(Buffer.from("a.b")) },
      { name: "a list of malformed items", make: items(Buffer.from("!")) },
    ];
  }
  if (field.scalar !== ScalarType.STRING) return [];
  return [
    { name: "a long text", make: within((bytes) => Buffer.alloc(bytes, "x")) },
    { name: "a long text of parentheses", make: within((bytes) => Buffer.alloc(bytes, "(")) },
    {
      name: "a text repeated many times",
      make: (bytes) => repeated(record(field.number, Buffer.alloc(0)), bytes),
      location: "body",
    },
  ];
}

function isMask({ message }: DescField): boolean {
  return message?.typeName === FieldMaskSchema.typeName;
}

/** As many parts between a prefix and a suffix as fit. */
function listed(
  prefix: string,
  part: (index: number) => string,
  suffix: string,
  bytes: number,
  separator = ",",
): Buffer {
  const parts: string[] = [];
  let left = bytes - prefix.length - suffix.length;
  for (let index = 0; ; index++) {
    const next = part(index);
    left -= next.length + separator.length;
    if (left < 0) break;
    parts.push(next);
  }
  return Buffer.from(`${prefix}${parts.join(separator)}${suffix}`);
}

function nested(prefix: string, begin: string, middle: string, end: string, suffix: string, bytes: number): Buffer {
  const levels = Math.floor((bytes - prefix.length - middle.length - suffix.length) / (begin.length + end.length));
  return Buffer.from(`${prefix}${begin.repeat(levels)}${middle}${end.repeat(levels)}${suffix}`);
}

function repeated(part: Buffer, bytes: number): Buffer {
  return Buffer.alloc(Math.max(0, Math.floor(bytes / part.length) * part.length), part);
}

function gathered(part: (index: number) => Buffer, bytes: number): Buffer {
  const parts: Buffer[] = [];
  let left = bytes;
  for (let index = 0; ; index++) {
    const next = part(index);
    left -= next.length;
    if (left < 0) return Buffer.concat(parts);
    parts.push(next);
  }
}

/** Wraps from the innermost level outwards while it fits. The number of levels is limited, because each step copies. */
function deepened(wrap: (inner: Buffer) => Buffer, bytes: number): Buffer {
  let nestedBytes: Buffer = Buffer.alloc(0);
  for (let level = 0; level < 2_000; level++) {
    const larger = wrap(nestedBytes);
    if (larger.length > bytes) break;
    nestedBytes = larger;
  }
  return nestedBytes;
}

function record(number: number, content: Uint8Array): Buffer {
  return Buffer.from(new BinaryWriter().tag(number, WireType.LengthDelimited).bytes(content).finish());
}

/** One member of a Struct. */
function member(value: Uint8Array, name = "a"): Buffer {
  return record(1, Buffer.concat([record(1, Buffer.from(name)), record(2, value)]));
}

const manyMembers = (index: number) => member(Buffer.of(0x08, 0), index.toString(36));
