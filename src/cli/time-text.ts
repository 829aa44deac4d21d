// How times and durations are written on the command line.
import { type Timestamp, timestampFromDate } from "@bufbuild/protobuf/wkt";
import { InvalidArgumentError } from "commander";

/** The units of durations, in milliseconds. */
export const unitsMs = { ms: 1, s: 1_000, m: 60_000, h: 3_600_000, d: 86_400_000, w: 604_800_000 };

/** Parses a time in ISO 8601. Without an offset, a date is in UTC, and a date with a time is in the local time zone. */
export function time(text: string): Timestamp {
  return parseTime(text) ?? invalid("It must be a time, such as 2030-01-31 or 2030-01-31T12:00:00Z.");
}

/** Parses an expiry: a time, or a duration from now. */
export function expiry(text: string): Timestamp {
  const found = parseTime(text) ?? timeAfter(text);
  return (
    found ??
    invalid("It must be a duration from now, such as 30d (units: s, m, h, d, w), or a time, such as 2030-01-31.")
  );
}

function timeAfter(text: string): Timestamp | undefined {
  const [, count, unit = ""] = /^(\d+)(s|m|h|d|w)$/.exec(text) ?? [];
  if (count === undefined) return undefined;
  return toTimestamp(new Date(Date.now() + Number(count) * unitsMs[unit as keyof typeof unitsMs]));
}

/** Date alone would accept `30` as a month or a year, and move the 31st of February to March. */
function parseTime(text: string): Timestamp | undefined {
  const [, date] =
    /^(\d{4}-\d{2}-\d{2})(?:T\d{2}:\d{2}(?::\d{2}(?:\.\d{1,9})?)?(?:Z|[+-]\d{2}:\d{2})?)?$/.exec(text) ?? [];
  if (date === undefined || !isDay(date)) return undefined;
  return toTimestamp(new Date(text));
}

function isDay(date: string): boolean {
  const parsed = new Date(date);
  return !Number.isNaN(parsed.getTime()) && parsed.toISOString().startsWith(date);
}

/** Undefined for a time after the year 9999, which a Timestamp cannot have. */
function toTimestamp(date: Date): Timestamp | undefined {
  return date.getTime() < Date.UTC(10_000, 0) ? timestampFromDate(date) : undefined;
}

function invalid(message: string): never {
  throw new InvalidArgumentError(message);
}
