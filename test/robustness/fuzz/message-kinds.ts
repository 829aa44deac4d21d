import { ScalarType } from "@bufbuild/protobuf";
import { BinaryWriter, WireType } from "@bufbuild/protobuf/wire";
import { FieldMaskSchema } from "@bufbuild/protobuf/wkt";
import fc from "fast-check";
import type { ProtocolName } from "../../support/clients/raw-request.js";
import { type Place, placesIn, withValue } from "../../support/places.js";
import { asIs, corrupted, type Kind } from "./kind.js";
import type { Operation } from "./operations.js";
import { structsIn } from "./request-kinds.js";
import { anyCharacter, sampleOf, validRequest } from "./valid-requests.js";

const protocols: readonly ProtocolName[] = ["grpc", "connect-proto", "grpc-web"];

/** Unusual and invalid protobuf bodies. */
export const messageKinds: readonly Kind[] = [
  {
    name: "random bytes",
    protocols,
    make: (operation, protocol) =>
      fc
        .uint8Array({ maxLength: 200 })
        .map((bytes) => corrupted(operation, protocol, {}, () => Buffer.from(bytes), { form: "either" })),
  },
  {
    name: "flipped bits",
    protocols,
    make: (operation, protocol) =>
      fc
        .tuple(validRequest(operation.rpc.input), fc.array(fc.nat(), { minLength: 1, maxLength: 3 }))
        .map(([valid, bits]) =>
          corrupted(operation, protocol, valid, (body) => flipped(body, bits), { form: "either" }),
        ),
  },
  {
    name: "truncated message",
    protocols,
    make: (operation, protocol) =>
      fc.tuple(validRequest(operation.rpc.input), fc.nat()).map(([valid, at]) =>
        corrupted(operation, protocol, valid, (body) => body.subarray(0, at % Math.max(1, body.length)), {
          form: "either",
        }),
      ),
  },
  {
    name: "wrong wire types",
    protocols,
    make: (operation, protocol) =>
      fc
        .tuple(
          validRequest(operation.rpc.input),
          fc.constantFrom(...placesIn(operation.rpc.input)),
          fc.nat(7),
          fc.uint8Array({ maxLength: 12 }),
        )
        .map(([valid, place, wireType, content]) => {
          const record = Buffer.of((place.field.number << 3) | wireType, ...content);
          return appended(operation, protocol, valid, within(place, record), "either");
        }),
  },
  {
    name: "over-long varints",
    protocols,
    make: (operation, protocol) =>
      fc
        .tuple(validRequest(operation.rpc.input), fc.integer({ min: 5, max: 40 }), fc.boolean(), fc.nat(127))
        .map(([valid, length, isTag, last]) => {
          const varint = [...Array.from({ length }, () => 0x80), last];
          return appended(operation, protocol, valid, Buffer.of(...(isTag ? [] : [0xc0, 0x0c]), ...varint), "either");
        }),
  },
  {
    name: "groups",
    protocols,
    make: (operation, protocol) =>
      fc
        .tuple(validRequest(operation.rpc.input), fc.constantFrom(1, 3, 99, 10_000), fc.boolean())
        .map(([valid, depth, isClosed]) => {
          const begin = Buffer.alloc(depth, (15 << 3) | WireType.StartGroup);
          const end = Buffer.alloc(isClosed ? depth : 0, (15 << 3) | WireType.EndGroup);
          return appended(operation, protocol, valid, Buffer.concat([begin, end]), isClosed ? "either" : "invalid");
        }),
  },
  {
    name: "huge lengths",
    protocols,
    make: (operation, protocol) =>
      fc
        .tuple(
          validRequest(operation.rpc.input),
          fc.constantFrom(undefined, ...textsIn(operation)),
          fc.constantFrom(1_000, 2 ** 31 - 1, 2 ** 32 - 1),
        )
        .map(([valid, place, length]) => {
          const number = place?.field.number ?? 100;
          const wrongLength = new BinaryWriter().tag(number, WireType.LengthDelimited).uint32(length).finish();
          return appended(operation, protocol, valid, place ? within(place, wrongLength) : wrongLength, "invalid");
        }),
  },
  {
    name: "invalid UTF-8 in protobuf",
    protocols,
    make: (operation, protocol) => {
      const bytes = fc.constantFrom([0xff, 0xfe], [0xc3], [0xed, 0xa0, 0x80], [0xc0, 0x80], [0xf4, 0x90, 0x80, 0x80]);
      return fc
        .tuple(validRequest(operation.rpc.input), fc.constantFrom(...textsIn(operation)), bytes)
        .map(([valid, place, bytes]) => {
          const text = Buffer.from(bytes);
          const value = place.field.fieldKind === "list" ? [text] : text;
          return asIs(operation, protocol, withValue(valid, place, value, sampleOf), { form: "invalid" });
        });
    },
  },
  {
    name: "deep Struct",
    weight: 6,
    protocols,
    applies: (operation) => structsIn(operation).length > 0,
    make: (operation, protocol) =>
      fc
        .tuple(
          validRequest(operation.rpc.input),
          fc.constantFrom(...structsIn(operation)),
          fc.constantFrom(33, 49, 51, 99, 101, 5_000), // more levels would not fit into a message
        )
        .map(([valid, place, levels]) => {
          const { field, outer } = place;
          const { [(outer[0] ?? field).jsonName]: _replaced, ...others } = valid;
          const written = new BinaryWriter()
            .tag(field.number, WireType.LengthDelimited)
            .bytes(deepStruct(levels))
            .finish();
          return appended(operation, protocol, others, within(place, written), "invalid");
        }),
  },
  {
    name: "unknown protobuf fields",
    protocols,
    make: (operation, protocol) =>
      fc
        .tuple(
          validRequest(operation.rpc.input),
          fc.integer({ min: 100, max: 536_870_911 }),
          fc.uint8Array({ maxLength: 50 }),
        )
        // Protobuf ignores unknown fields, so that a newer client can call an older service.
        .map(([valid, number, content]) => {
          const unknown = new BinaryWriter().tag(number, WireType.LengthDelimited).bytes(content).finish();
          return appended(operation, protocol, valid, unknown, "valid");
        }),
  },
  {
    name: "unusual update masks",
    protocols,
    applies: ({ rpc }) => rpc.input.fields.some(isMask),
    make: (operation, protocol) => {
      const fields = operation.rpc.input.fields;
      const names = fc.constantFrom(
        ...placesIn(operation.rpc.input).map(({ field, outer }) => [...outer, field].map(({ name }) => name).join(".")),
        "__proto__",
        "constructor",
        "*",
        "meta.a",
        "",
        "$typeName",
      );
      const paths = fc.array(fc.oneof(names, fc.string({ unit: anyCharacter })), { minLength: 1, maxLength: 5 });
      return fc.tuple(validRequest(operation.rpc.input), paths).map(([valid, paths]) => {
        const writer = new BinaryWriter().tag(fields.find(isMask)?.number ?? 0, WireType.LengthDelimited).fork();
        for (const path of paths) writer.tag(1, WireType.LengthDelimited).string(path);
        return appended(operation, protocol, valid, writer.join().finish(), "either");
      });
    },
  },
];

function textsIn({ rpc }: Operation): Place[] {
  return placesIn(rpc.input).filter(({ field }) => field.scalar === ScalarType.STRING);
}

/** Bytes of a message, in the messages around a place. */
function within({ outer }: Place, bytes: Uint8Array): Uint8Array {
  return outer.reduceRight<Uint8Array>(
    (content, { number }) => new BinaryWriter().tag(number, WireType.LengthDelimited).bytes(content).finish(),
    bytes,
  );
}

function isMask({ message }: { message?: { typeName: string } | undefined }): boolean {
  return message?.typeName === FieldMaskSchema.typeName;
}

/** A valid message with appended bytes. */
function appended(
  operation: Operation,
  protocol: ProtocolName,
  valid: Readonly<Record<string, unknown>>,
  suffix: Uint8Array,
  form: "valid" | "invalid" | "either",
) {
  return corrupted(operation, protocol, valid, (body) => Buffer.concat([body, suffix]), { form });
}

function flipped(body: Buffer, bits: readonly number[]): Buffer {
  const corrupted = Buffer.from(body);
  for (const bit of bits) {
    const at = (bit >>> 3) % Math.max(1, corrupted.length);
    if (corrupted.length > 0) corrupted.writeUInt8(corrupted.readUInt8(at) ^ (1 << (bit & 7)), at);
  }
  return corrupted;
}

/** The bytes of nested Structs, built from the innermost outwards. Recursion would overflow the stack. */
function deepStruct(levels: number): Uint8Array {
  const headers: Uint8Array[] = [];
  let length = 0;
  for (let level = 1; level < levels; level++) {
    const value = new BinaryWriter().tag(5, WireType.LengthDelimited).uint32(length).finish();
    const valueLength = value.length + length;
    const entry = new BinaryWriter()
      .tag(1, WireType.LengthDelimited)
      .string("a")
      .tag(2, WireType.LengthDelimited)
      .uint32(valueLength)
      .finish();
    const entryLength = entry.length + valueLength;
    const header = new BinaryWriter().tag(1, WireType.LengthDelimited).uint32(entryLength).finish();
    headers.push(Buffer.concat([header, entry, value]));
    length = header.length + entryLength;
  }
  return Buffer.concat(headers.reverse());
}
