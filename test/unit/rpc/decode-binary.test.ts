import { create, type DescMessage, type MessageInitShape, ScalarType, toBinary } from "@bufbuild/protobuf";
import { BinaryWriter, WireType } from "@bufbuild/protobuf/wire";
import { describe, expect, it } from "vitest";
import { CreateKeyRequestSchema } from "../../../gen/latchkey/v1/keys_service_pb.js";
import { DelegateRequestSchema } from "../../../gen/latchkey/v1/verifier_service_pb.js";
import type { ApiError } from "../../../src/errors.js";
import { readBinary } from "../../../src/rpc/decode-binary.js";
import { ImportThingsRequestSchema, LimitSchema, UpdateThingRequestSchema } from "../../support/things-service.js";

/** A length-delimited record: a text or a message. */
function record(number: number, content: Uint8Array | string = ""): Buffer {
  return Buffer.from(new BinaryWriter().tag(number, WireType.LengthDelimited).bytes(Buffer.from(content)).finish());
}

function times(count: number, part: Uint8Array): Buffer {
  return Buffer.concat(Array.from({ length: count }, () => part));
}

/** Bytes of an unknown field. They exceed the size below which a message is not scanned. */
const filler = record(1_000, Buffer.alloc(2_000));

/** The error of a message: its location and text. */
function errorOf(schema: DescMessage, bytes: Uint8Array): string | undefined {
  try {
    readBinary(schema, bytes);
    return undefined;
  } catch (error) {
    const [field] = (error as ApiError).options.fields ?? [];
    return `${field?.location} ${field?.message}`;
  }
}

// The numbers of the fields.
const [things, hash, permissions, limits, meta, tags] = [1, 1, 2, 3, 4, 4];
const [name, credits, refill, objectField, updateMask] = [2, 3, 2, 5, 6];

describe("the messages and lists in a request have limits of their own", () => {
  const inThings = (content: Uint8Array) => Buffer.concat([record(things), record(things, content), filler]);

  // biome-ignore format: one line each
  it.each<[string, Buffer, string]>([
    ["too many messages in a list", times(101, record(things)), "things must contain no more than 100 item(s)"],
    ["too many texts in a list", inThings(times(101, record(permissions))), "things[1].permissions must contain no more than 100 item(s)"],
    ["too many messages in a nested list", inThings(times(51, record(limits))), "things[1].limits must contain no more than 50 item(s)"],
    ["too many texts in a nested message", inThings(Buffer.concat([record(limits), record(limits, times(4, record(tags)))])), "things[1].limits[1].tags must contain no more than 3 item(s)"],
    ["too many members", inThings(times(101, record(hash))), "things[1] must not have more than 100 members"],
    ["too many unknown members", inThings(times(101, record(99))), "things[1] must not have more than 100 members"],
    ["an object with too many values", inThings(record(meta, times(16_385, record(1)))), "things[1].meta must not be larger than 16 KiB as JSON"],
    ["bytes that are no message", inThings(Buffer.of(0xff)), "body is not a valid latchkey.test.v1.ImportThingsRequest message"],
  ])("%s", (_what, bytes, error) => {
    expect(errorOf(ImportThingsRequestSchema, Buffer.concat([bytes, filler]))).toBe(error);
  });

  it("many values, each of which is within its limits, exceed that of the request", () => {
    const object = record(meta, times(1_000, record(99)));
    expect(errorOf(ImportThingsRequestSchema, times(30, record(things, object)))).toBeUndefined();
    expect(errorOf(ImportThingsRequestSchema, times(40, record(things, object)))).toBe(
      "body must not have more than 16384 values",
    );
  });

  it("members of a message that is given several times", () => {
    const bytes = Buffer.concat([times(3, record(credits, times(34, record(refill)))), filler]);
    expect(errorOf(UpdateThingRequestSchema, bytes)).toBeUndefined();
    expect(errorOf(UpdateThingRequestSchema, Buffer.concat([times(101, record(name)), filler]))).toBe(
      "body must not have more than 100 members",
    );
  });

  it("paths of an update mask", () => {
    const bytes = record(updateMask, times(20_000, record(1)));
    expect(errorOf(UpdateThingRequestSchema, bytes)).toBe("updateMask must not be larger than 16 KiB as JSON");
  });

  it("uses that a verifier reports", () => {
    const uses = (count: number) => record(3, times(count, record(1, Buffer.of(0x18, 1))));
    expect(errorOf(DelegateRequestSchema, uses(500))).toBeUndefined();
    expect(errorOf(DelegateRequestSchema, uses(501))).toBe("uses.keys must contain no more than 500 item(s)");
  });
});

describe("records that a decoder would read differently, or with a multiple of the work, are refused in a body of any size", () => {
  const padded = (bytes: Buffer) => [bytes, Buffer.concat([bytes, filler])];
  const thing = toBinary(UpdateThingRequestSchema, create(UpdateThingRequestSchema, { name: "x" }));

  it("an object that is given more than once", () => {
    const object = record(objectField, record(1));
    expect(errorOf(UpdateThingRequestSchema, Buffer.concat([thing, object]))).toBeUndefined();
    for (const bytes of padded(Buffer.concat([thing, object, object]))) {
      expect(errorOf(UpdateThingRequestSchema, bytes)).toBe("meta is given more than once");
    }
  });

  it("a group", () => {
    const group = Buffer.from(
      new BinaryWriter().tag(99, WireType.StartGroup).tag(99, WireType.EndGroup).finish() as Uint8Array,
    );
    for (const bytes of padded(group)) expect(errorOf(UpdateThingRequestSchema, bytes)).toMatch(/^body is not a valid/);
  });

  const fields = [UpdateThingRequestSchema, LimitSchema, CreateKeyRequestSchema].flatMap((schema) => schema.fields);
  it.each(fields.map((field) => [`${field}`, field] as const))(
    "the %s with another wire type",
    (_name, { parent, number, fieldKind, message, scalar }) => {
      const isDelimited = fieldKind === "map" || message !== undefined || scalar === ScalarType.STRING;
      const declared = isDelimited ? WireType.LengthDelimited : WireType.Varint;
      const contents = [
        [WireType.Varint, Buffer.of(0)],
        [WireType.Bit64, Buffer.alloc(8)],
        [WireType.LengthDelimited, Buffer.of(0)],
        [WireType.Bit32, Buffer.alloc(4)],
      ] as const;
      for (const [type, content] of contents) {
        const isValid = type === declared;
        const bytes = Buffer.concat([new BinaryWriter().tag(number, type).finish(), content]);
        for (const body of padded(bytes)) {
          if (isValid) expect(errorOf(parent, body)).toBeUndefined();
          else expect(errorOf(parent, body)).toBe(`body is not a valid ${parent.typeName} message`);
        }
      }
    },
  );
});

it("a large valid request is decoded", () => {
  const limit = { name: "requests", limit: 5n, tags: ["a", "b", "c"], meta: { a: [1, { b: null }] } };
  const request = create(ImportThingsRequestSchema, {
    things: Array.from({ length: 100 }, (_, index) => ({
      hash: `hash ${index}`,
      permissions: Array.from({ length: 60 }, (_, each) => `documents.${each}`),
      limits: Array.from({ length: 5 }, () => limit),
    })),
  } as MessageInitShape<typeof ImportThingsRequestSchema>);
  const bytes = toBinary(ImportThingsRequestSchema, request);
  expect(bytes.length).toBeGreaterThan(100_000);
  expect(readBinary(ImportThingsRequestSchema, bytes)).toEqual(request);
});
