import { beforeEach, describe, expect, it } from "vitest";
import { createLocalGrant, type LocalGrant } from "../../../src/verifier/grant.js";
import { createClocks } from "./clocks.js";

let clocks: ReturnType<typeof createClocks>;
let grant: LocalGrant;
beforeEach(() => {
  clocks = createClocks();
  grant = createLocalGrant(clocks);
});

describe("the right to verify locally", () => {
  it("does not exist before the first grant", () => {
    grant.beginPing();
    expect(grant.remaining()).toBe(0);
    expect(grant.hasJumped()).toBe(false);
  });

  it("ends 1 % and 5 ms before the granted time, counted from the ping", () => {
    const ping = grant.beginPing();
    clocks.pass(50);
    grant.accept(ping, 200);
    expect(grant.remaining()).toBeCloseTo(0.99 * 200 - 5 - 50);
    clocks.pass(142);
    expect(grant.remaining()).toBeCloseTo(1);
    clocks.pass(2);
    expect(grant.remaining()).toBe(0);
  });

  it("does not begin with a grant that arrives after its time", () => {
    const ping = grant.beginPing();
    clocks.pass(10_000);
    expect(grant.accept(ping, 250)).toBe(true);
    expect(grant.remaining()).toBe(0);
  });

  it("is never shortened or repeated: an older grant, a duplicate and an unknown number change nothing", () => {
    const first = grant.beginPing();
    clocks.pass(100);
    const second = grant.beginPing();
    grant.accept(second, 250);
    const remaining = grant.remaining();
    for (const [number, ms] of [
      [first, 10_000],
      [second, 10_000],
      [second + 1, 10_000],
      [0, 10_000],
    ] as const) {
      expect(grant.accept(number, ms)).toBe(false);
    }
    expect(grant.remaining()).toBe(remaining);
  });

  it("keeps the later end if a later ping is granted for less", () => {
    const first = grant.beginPing();
    grant.accept(first, 250);
    const second = grant.beginPing();
    grant.accept(second, 20);
    expect(grant.remaining()).toBeCloseTo(0.99 * 250 - 5);
  });

  it("remembers a hundred pings: a grant for an older one is ignored", () => {
    const first = grant.beginPing();
    for (let ping = 0; ping < 100; ping++) grant.beginPing();
    expect(grant.unanswered).toBe(100);
    expect(grant.accept(first, 250)).toBe(false);
  });
});

describe.each([
  ["the machine was suspended, or its clock was set ahead", 6],
  ["its clock was set back", -6],
])("when %s", (_why, ms) => {
  it("the right is lost", () => {
    grant.accept(grant.beginPing(), 250);
    clocks.jump(ms);
    expect(grant.remaining()).toBe(0);
    expect(grant.hasJumped()).toBe(true);
  });

  it("the jump is noticed between two pings, even if only the second is granted", () => {
    grant.accept(grant.beginPing(), 250);
    clocks.jump(ms);
    grant.accept(grant.beginPing(), 250);
    expect(grant.hasJumped()).toBe(true);
    expect(grant.remaining()).toBe(0);
  });

  it("a grant of a ping from before it gives no right", () => {
    const ping = grant.beginPing();
    clocks.jump(ms);
    grant.accept(ping, 250);
    expect(grant.remaining()).toBe(0);
  });
});

it("a difference of the clocks within 5 ms is no jump", () => {
  grant.accept(grant.beginPing(), 250);
  clocks.jump(4);
  expect(grant.hasJumped()).toBe(false);
  expect(grant.remaining()).toBeGreaterThan(0);
});
