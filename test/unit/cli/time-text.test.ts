import { timestampMs } from "@bufbuild/protobuf/wkt";
import { afterEach, describe, expect, it, vi } from "vitest";
import { expiry, time } from "../../../src/cli/time-text.js";

afterEach(() => {
  vi.useRealTimers();
});

describe("an expiry is a duration from now, or a time", () => {
  it.each([
    ["90s", 90_000],
    ["15m", 900_000],
    ["12h", 43_200_000],
    ["30d", 2_592_000_000],
    ["2w", 1_209_600_000],
  ])("%s", (text, ms) => {
    const now = Date.UTC(2030, 0, 31);
    vi.setSystemTime(now);
    expect(timestampMs(expiry(text))).toBe(now + ms);
  });

  it.each([
    ["2030-01-31", "2030-01-31T00:00:00Z"],
    ["2030-01-31T12:00Z", "2030-01-31T12:00:00Z"],
    ["2030-01-31T12:00:00+02:00", "2030-01-31T10:00:00Z"],
    ["2030-01-31T12:00:00.250Z", "2030-01-31T12:00:00.250Z"],
  ])("%s", (text, expected) => {
    expect(timestampMs(expiry(text))).toBe(Date.parse(expected));
    expect(timestampMs(time(text))).toBe(Date.parse(expected));
  });

  // Without a check, JavaScript takes some of these for a year or a month, and others for a day of the next month.
  it.each(["30", "1", "30 d", "-30d", "1.5h", "30D", "30y", "2030-02-31", "2030-13-01", "2030-01-31T25:00Z", "soon"])(
    "%s is refused with both forms",
    (text) => {
      expect(() => expiry(text)).toThrow(/such as 30d .*s, m, h, d, w.*such as 2030-01-31/);
    },
  );

  it("a duration beyond the year 9999 is refused", () => {
    expect(() => expiry("9999999d")).toThrow(/30d/);
    expect(() => expiry(`${"9".repeat(400)}w`)).toThrow(/30d/);
  });
});

it("a point in time is not a duration", () => {
  expect(() => time("30d")).toThrow(/It must be a time, such as 2030-01-31 or 2030-01-31T12:00:00Z/);
});
