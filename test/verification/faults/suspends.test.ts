import { describe, expect, it } from "vitest";
import { createSuspends } from "./suspends.js";

describe("a call on a replica that was suspended", () => {
  it("counts as begun before the suspend, until the replica must apply acknowledged changes", () => {
    const suspends = createSuspends();
    suspends.began(1_000);
    expect(suspends.effectiveBegin(1_500)).toBe(1_000);
    suspends.ended(2_100);
    expect(suspends.effectiveBegin(2_099)).toBe(1_000);
  });

  it("counts from its own begin before the suspend and after the end of the period", () => {
    const suspends = createSuspends();
    suspends.began(1_000);
    suspends.ended(2_100);
    expect(suspends.effectiveBegin(999)).toBe(999);
    expect(suspends.effectiveBegin(2_100)).toBe(2_100);
  });

  it("is assigned to the right one of several suspends", () => {
    const suspends = createSuspends();
    suspends.began(1_000);
    suspends.ended(2_000);
    suspends.began(3_000);
    expect(suspends.effectiveBegin(1_500)).toBe(1_000);
    expect(suspends.effectiveBegin(2_500)).toBe(2_500);
    expect(suspends.effectiveBegin(3_500)).toBe(3_000);
  });
});
