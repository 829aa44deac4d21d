import { ScalarType } from "@bufbuild/protobuf";
import { BinaryWriter, WireType } from "@bufbuild/protobuf/wire";
import { FieldMaskSchema } from "@bufbuild/protobuf/wkt";
import fc from "fast-check";
import { anyCharacter, goodRequest } from "./good-requests.js";
import { asIs, type Kind, spoilt } from "./kind.js";
import type { Operation } from "./operations.js";
import { structsIn, withField } from "./request-kinds.js";
import type { ProtocolName } from "./sent.js";

const protocols: readonly ProtocolName[] = ["grpc", "connect-proto", "grpc-web"];

/** Bodies that are odd as protobuf. */
export const messageKinds: readonly Kind[] = [
  {
    name: "random bytes",
    protocols,
    make: (operation, protocol) =>
      fc
        .uint8Array({ maxLength: 200 })
        .map((bytes) => spoilt(operation, protocol, {}, () => Buffer.from(bytes), { form: "either" })),
  },
  {
    name: "flipped bits",
    protocols,
    make: (operation, protocol) =>
      fc
        .tuple(goodRequest(operation.rpc.input), fc.array(fc.nat(), { minLength: 1, maxLength: 3 }))
        .map(([good, bits]) => spoilt(operation, protocol, good, (body) => flipped(body, bits), { form: "either" })),
  },
  {
    name: "cut message",
    protocols,
    make: (operation, protocol) =>
      fc.tuple(goodRequest(operation.rpc.input), fc.nat()).map(([good, at]) =>
        spoilt(operation, protocol, good, (body) => body.subarray(0, at % Math.max(1, body.length)), {
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
          goodRequest(operation.rpc.input),
          fc.constantFrom(...operation.rpc.input.fields.map(({ number }) => number)),
          fc.nat(7),
          fc.uint8Array({ maxLength: 12 }),
        )
        .map(([good, number, wireType, content]) =>
          appended(operation, protocol, good, Buffer.of((number << 3) | wireType, ...content), "either"),
        ),
  },
  {
    name: "over-long varints",
    protocols,
    make: (operation, protocol) =>
      fc
        .tuple(goodRequest(operation.rpc.input), fc.integer({ min: 5, max: 40 }), fc.boolean(), fc.nat(127))
        .map(([good, length, asTag, last]) => {
          const varint = [...Array.from({ length }, () => 0x80), last];
          return appended(operation, protocol, good, Buffer.of(...(asTag ? [] : [0xc0, 0x0c]), ...varint), "either");
        }),
  },
  {
    name: "groups",
    protocols,
    make: (operation, protocol) =>
      fc
        .tuple(goodRequest(operation.rpc.input), fc.constantFrom(1, 3, 99, 10_000), fc.boolean())
        .map(([good, depth, isClosed]) => {
          const begin = Buffer.alloc(depth, (15 << 3) | WireType.StartGroup);
          const end = Buffer.alloc(isClosed ? depth : 0, (15 << 3) | WireType.EndGroup);
          return appended(operation, protocol, good, Buffer.concat([begin, end]), isClosed ? "either" : "unsound");
        }),
  },
  {
    name: "huge lengths",
    protocols,
    make: (operation, protocol) =>
      fc
        .tuple(
          goodRequest(operation.rpc.input),
          fc.constantFrom(100, ...textFields(operation).map(({ number }) => number)),
          fc.constantFrom(1_000, 2 ** 31 - 1, 2 ** 32 - 1),
        )
        .map(([good, number, length]) => {
          const lie = new BinaryWriter().tag(number, WireType.LengthDelimited).uint32(length).finish();
          return appended(operation, protocol, good, lie, "unsound");
        }),
  },
  {
    name: "text that is not UTF-8",
    protocols,
    make: (operation, protocol) => {
      const bytes = fc.constantFrom([0xff, 0xfe], [0xc3], [0xed, 0xa0, 0x80], [0xc0, 0x80], [0xf4, 0x90, 0x80, 0x80]);
      return fc
        .tuple(goodRequest(operation.rpc.input), fc.constantFrom(...textFields(operation)), bytes)
        .map(([good, field, bytes]) => {
          const value = Buffer.from(bytes);
          return asIs(operation, protocol, withField(good, field, field.fieldKind === "list" ? [value] : value), {
            form: "unsound",
          });
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
          goodRequest(operation.rpc.input),
          fc.constantFrom(...structsIn(operation)),
          fc.constantFrom(33, 49, 51, 99, 101, 5_000), // no more would fit into a message
        )
        .map(([good, field, levels]) => {
          const { [field.jsonName]: _replaced, ...others } = good;
          const written = new BinaryWriter()
            .tag(field.number, WireType.LengthDelimited)
            .bytes(deepStruct(levels))
            .finish();
          return appended(operation, protocol, others, written, "unsound");
        }),
  },
  {
    name: "unknown fields of protobuf",
    protocols,
    make: (operation, protocol) =>
      fc
        .tuple(
          goodRequest(operation.rpc.input),
          fc.integer({ min: 100, max: 536_870_911 }),
          fc.uint8Array({ maxLength: 50 }),
        )
        // As protobuf has it, they are passed over: a newer client can talk to an older service.
        .map(([good, number, content]) => {
          const unknown = new BinaryWriter().tag(number, WireType.LengthDelimited).bytes(content).finish();
          return appended(operation, protocol, good, unknown, "sound");
        }),
  },
  {
    name: "odd update masks",
    protocols,
    applies: ({ rpc }) => rpc.input.fields.some(isMask),
    make: (operation, protocol) => {
      const fields = operation.rpc.input.fields;
      const names = fc.constantFrom(
        ...fields.map(({ name }) => name),
        "__proto__",
        "constructor",
        "*",
        "meta.a",
        "",
        "$typeName",
      );
      const paths = fc.array(fc.oneof(names, fc.string({ unit: anyCharacter })), { minLength: 1, maxLength: 5 });
      return fc.tuple(goodRequest(operation.rpc.input), paths).map(([good, paths]) => {
        const writer = new BinaryWriter().tag(fields.find(isMask)?.number ?? 0, WireType.LengthDelimited).fork();
        for (const path of paths) writer.tag(1, WireType.LengthDelimited).string(path);
        return appended(operation, protocol, good, writer.join().finish(), "either");
      });
    },
  },
];

function textFields({ rpc }: Operation) {
  return rpc.input.fields.filter(({ scalar }) => scalar === ScalarType.STRING);
}

function isMask({ message }: { message?: { typeName: string } | undefined }): boolean {
  return message?.typeName === FieldMaskSchema.typeName;
}

/** A good message with more bytes at its end. */
function appended(
  operation: Operation,
  protocol: ProtocolName,
  good: Readonly<Record<string, unknown>>,
  more: Uint8Array,
  form: "sound" | "unsound" | "either",
) {
  return spoilt(operation, protocol, good, (body) => Buffer.concat([body, more]), { form });
}

function flipped(body: Buffer, bits: readonly number[]): Buffer {
  const spoilt = Buffer.from(body);
  for (const bit of bits) {
    const at = (bit >>> 3) % Math.max(1, spoilt.length);
    if (spoilt.length > 0) spoilt.writeUInt8(spoilt.readUInt8(at) ^ (1 << (bit & 7)), at);
  }
  return spoilt;
}

/** The bytes of a Struct in a Struct, from the innermost outwards: no stack is deep enough to write it otherwise. */
function deepStruct(levels: number): Uint8Array {
  const heads: Uint8Array[] = [];
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
    const head = new BinaryWriter().tag(1, WireType.LengthDelimited).uint32(entryLength).finish();
    heads.push(Buffer.concat([head, entry, value]));
    length = head.length + entryLength;
  }
  return Buffer.concat(heads.reverse());
}
