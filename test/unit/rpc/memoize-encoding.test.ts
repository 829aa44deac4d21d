import { create } from "@bufbuild/protobuf";
import { describe, expect, it, vi } from "vitest";
import { VerifyKeyResponseSchema } from "../../../gen/latchkey/v1/keys_service_pb.js";
import { memoizeEncoding } from "../../../src/rpc/memoize-encoding.js";

describe("memoizeEncoding", () => {
  it("encodes a frozen message once", () => {
    const encode = vi.fn(() => "text");
    const encodeMemoized = memoizeEncoding(encode);
    const message = Object.freeze(create(VerifyKeyResponseSchema, { valid: true }));
    expect([encodeMemoized(message), encodeMemoized(message)]).toEqual(["text", "text"]);
    expect(encode).toHaveBeenCalledTimes(1);
  });

  it("encodes a mutable message each time", () => {
    const encodeMemoized = memoizeEncoding((message) => JSON.stringify(message));
    const message = create(VerifyKeyResponseSchema, { valid: true });
    const before = encodeMemoized(message);
    message.valid = false;
    expect(encodeMemoized(message)).not.toBe(before);
  });
});
