import { create, type DescMessage, type MessageInitShape, toBinary } from "@bufbuild/protobuf";
import { BinaryWriter, WireType } from "@bufbuild/protobuf/wire";
import { describe, expect, it } from "vitest";
import { DelegateRequestSchema } from "../../../gen/latchkey/v1/verifier_service_pb.js";
import type { ApiError } from "../../../src/errors.js";
import { readBinary } from "../../../src/rpc/decode-binary.js";
import { ImportThingsRequestSchema, UpdateThingRequestSchema } from "../../support/things-service.js";

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
const [name, credits, refill, updateMask] = [2, 3, 2, 6];

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
