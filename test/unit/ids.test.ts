import { describe, expect, it, vi } from "vitest";
import { isId, mintId } from "../../src/ids.js";

describe("a minted id", () => {
  it("has the form of a TypeID: a UUIDv7 in base 32, with the time in front", () => {
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

  it("is another one each time, and later than the one before, also within a millisecond", () => {
    const ids = Array.from({ length: 100_000 }, () => mintId("req"));
    expect(new Set(ids).size).toBe(ids.length);
    expect(ids).toEqual([...ids].sort());
  });

  it("is later than the one before also when the clock was set back", () => {
    const earlier = mintId("evt");
    vi.spyOn(Date, "now").mockReturnValue(Date.now() - 60_000);
    try {
      expect(mintId("evt") > earlier).toBe(true);
    } finally {
      vi.restoreAllMocks();
    }
  });
});
