import { create } from "@bufbuild/protobuf";
import { timestampFromDate } from "@bufbuild/protobuf/wkt";
import { describe, expect, it } from "vitest";
import { UsagePeriodSchema } from "../../../gen/latchkey/v1/usage_pb.js";
import { ApiError } from "../../../src/errors.js";
import { toPeriod } from "../../../src/usage/convert.js";

function periodOf(granularity: string, from: string, to: string) {
  const [begin, end] = [from, to].map((time) => timestampFromDate(new Date(time)));
  return toPeriod(create(UsagePeriodSchema, { granularity, ...(begin && { from: begin }), ...(end && { to: end }) }));
}

describe("the period of a usage request", () => {
  it.each([
    ["hour", "2026-03-29T01:59:59.999Z", "2026-03-29T01:00:00.000Z"],
    ["hour", "1969-12-31T23:30:00.000Z", "1969-12-31T23:00:00.000Z"],
    ["day", "2024-02-29T23:59:59.999Z", "2024-02-29T00:00:00.000Z"],
    ["month", "2024-02-29T12:00:00.000Z", "2024-02-01T00:00:00.000Z"],
    ["month", "2025-12-31T23:59:59.999Z", "2025-12-01T00:00:00.000Z"],
    ["month", "0050-05-05T05:05:05.000Z", "0050-05-01T00:00:00.000Z"],
  ])("begins with the whole %s that contains %s", (granularity, from, beginning) => {
    const to = new Date(Date.parse(from) + 60_000).toISOString();
    expect(periodOf(granularity, from, to)).toEqual({ granularity, from: new Date(beginning), to: new Date(to) });
  });

  it.each([
    ["hour", "2026-01-01T00:30:00Z", "2026-02-11T16:00:00Z", "2026-02-11T16:00:00.001Z"],
    ["day", "2023-01-01T23:00:00Z", "2025-09-27T00:00:00Z", "2025-09-27T00:00:00.001Z"],
    ["month", "1950-01-31T00:00:00Z", "2033-05-01T00:00:00Z", "2033-05-01T00:00:00.001Z"],
  ])("may have 1,000 parts of a %s, and no more", (granularity, from, to, later) => {
    expect(periodOf(granularity, from, to)).toMatchObject({ granularity });
    expect(() => periodOf(granularity, from, later)).toThrow(ApiError);
    expect(() => periodOf(granularity, from, later)).toThrow(/period must have at most 1000 parts; it has 1001/);
  });

  it("has a default", () => {
    expect(toPeriod(undefined)).toBeUndefined();
  });
});
