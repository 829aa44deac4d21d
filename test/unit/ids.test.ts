import { describe, expect, it, vi } from "vitest";
import { isId, mintId } from "../../src/ids.js";

describe("a generated id", () => {
  it("has the format of a TypeID: a UUIDv7 in base 32, which begins with the time", () => {
    const before = Date.now();
    const id = mintId("key");
    expect(isId("key", id)).toBe(true);
    const bits = [...id.slice(4)].map((digit) =>
      "0123456789abcdefghjkmnpqrstvwxyz".indexOf(digit).toString(2).padStart(5, "0"),
    );
    const uuid = BigInt(`0b${bits.join("")}`)
      .toString(16)
      .padStart(32, "0");
    expect(Number(`0x${uuid.slice(0, 12)}`)).toBeGreaterThanOrEqual(before);
    expect(Number(`0x${uuid.slice(0, 12)}`)).toBeLessThanOrEqual(Date.now() + 1);
    expect(uuid[12]).toBe("7");
    expect("89ab").toContain(uuid[16]);
  });

  it("is unique and sorts after the previous one, also within a millisecond", () => {
    const ids = Array.from({ length: 20_000 }, () => mintId("req"));
    expect(new Set(ids).size).toBe(ids.length);
    expect(ids).toEqual([...ids].sort());
  });

  it("sorts after the previous one even if the clock was set back", () => {
    const earlier = mintId("evt");
    vi.spyOn(Date, "now").mockReturnValue(Date.now() - 60_000);
    try {
      expect(mintId("evt") > earlier).toBe(true);
    } finally {
      vi.restoreAllMocks();
    }
  });
});
