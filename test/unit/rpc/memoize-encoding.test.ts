import { create } from "@bufbuild/protobuf";
import { describe, expect, it, vi } from "vitest";
import { VerifyKeyResponseSchema } from "../../../gen/latchkey/v1/keys_service_pb.js";
import { memoizeEncoding } from "../../../src/rpc/memoize-encoding.js";

describe("a message", () => {
  it("that is frozen is written once", () => {
    const write = vi.fn(() => "text");
    const writer = memoizeEncoding(write);
    const message = Object.freeze(create(VerifyKeyResponseSchema, { valid: true }));
    expect([writer(message), writer(message)]).toEqual(["text", "text"]);
    expect(write).toHaveBeenCalledTimes(1);
  });

  it("that can still change is written each time", () => {
    const writer = memoizeEncoding((message) => JSON.stringify(message));
    const message = create(VerifyKeyResponseSchema, { valid: true });
    const before = writer(message);
    message.valid = false;
    expect(writer(message)).not.toBe(before);
  });
});
