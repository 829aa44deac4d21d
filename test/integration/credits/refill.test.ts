import type postgres from "postgres";
import { afterAll, beforeAll, describe, expect, inject, it } from "vitest";
import { openSql } from "../../../commands/open-sql.js";
import { createDatabase } from "../../support/harness.js";

let database: Awaited<ReturnType<typeof createDatabase>>;
let sql: postgres.Sql;

beforeAll(async () => {
  database = await createDatabase(inject("template"));
  sql = openSql(database.url, { max: 1, onnotice: () => {} });
});
afterAll(async () => {
  await sql.end();
  await database.drop();
});

/** Time zones of sessions: with daylight saving time, far from UTC, and with half hours. */
const zones = ["UTC", "Europe/Berlin", "America/New_York", "Pacific/Kiritimati", "Asia/Kolkata"];

/** Refills that follow each other. */
const refills: Readonly<Record<string, { interval: "daily" | "monthly"; day?: number; dates: readonly string[] }>> = {
  "daily, at the end of a February with 28 days": {
    interval: "daily",
    dates: ["2027-02-27", "2027-02-28", "2027-03-01"],
  },
  "daily, on a leap day": { interval: "daily", dates: ["2028-02-28", "2028-02-29", "2028-03-01"] },
  "daily, at the end of a year": { interval: "daily", dates: ["2027-12-31", "2028-01-01"] },
  "daily, when daylight saving time begins in Berlin": {
    interval: "daily",
    dates: ["2027-03-27", "2027-03-28", "2027-03-29"],
  },
  "daily, when daylight saving time ends in Berlin": {
    interval: "daily",
    dates: ["2027-10-30", "2027-10-31", "2027-11-01"],
  },
  "daily, when daylight saving time begins in New York": {
    interval: "daily",
    dates: ["2027-03-13", "2027-03-14", "2027-03-15"],
  },
  "monthly, on the 1st, over a year end": {
    interval: "monthly",
    day: 1,
    dates: ["2027-11-01", "2027-12-01", "2028-01-01"],
  },
  "monthly, on the 15th": { interval: "monthly", day: 15, dates: ["2027-02-15", "2027-03-15", "2027-04-15"] },
  "monthly, on the 28th": { interval: "monthly", day: 28, dates: ["2027-02-28", "2027-03-28", "2027-04-28"] },
  "monthly, on the 28th of a leap year": {
    interval: "monthly",
    day: 28,
    dates: ["2028-01-28", "2028-02-28", "2028-03-28"],
  },
  "monthly, on the 29th": { interval: "monthly", day: 29, dates: ["2027-01-29", "2027-02-28", "2027-03-29"] },
  "monthly, on the 29th of a leap year": {
    interval: "monthly",
    day: 29,
    dates: ["2028-01-29", "2028-02-29", "2028-03-29"],
  },
  "monthly, on the 30th": {
    interval: "monthly",
    day: 30,
    dates: ["2027-01-30", "2027-02-28", "2027-03-30", "2027-04-30"],
  },
  "monthly, on the 30th of a leap year": {
    interval: "monthly",
    day: 30,
    dates: ["2028-01-30", "2028-02-29", "2028-03-30"],
  },
  "monthly, on the 31st": {
    interval: "monthly",
    day: 31,
    dates: ["2027-01-31", "2027-02-28", "2027-03-31", "2027-04-30", "2027-05-31", "2027-06-30"],
  },
  "monthly, on the 31st of a leap year": {
    interval: "monthly",
    day: 31,
    dates: ["2028-01-31", "2028-02-29", "2028-03-31"],
  },
  "monthly, on the 31st, over a year end": {
    interval: "monthly",
    day: 31,
    dates: ["2027-11-30", "2027-12-31", "2028-01-31"],
  },
  "monthly, on the 29th of a year that is divisible by 100 and no leap year": {
    interval: "monthly",
    day: 29,
    dates: ["2100-01-29", "2100-02-28", "2100-03-29"],
  },
};

/** The last refill up to each of these moments. In a transaction, so that its time zone ends with it. */
async function lastRefills(zone: string, interval: string, day: number | undefined, moments: number[]) {
  const rows = await sql.begin(async (transaction) => {
    await transaction`select set_config('timezone', ${zone}, true)`;
    return transaction<{ at: Date }[]>`
      select last_refill(${interval}, ${day ?? null}::integer, to_timestamp(moment::numeric / 1000)) as at
      from unnest(string_to_array(${moments.join()}, ',')) with ordinality as given (moment, place) order by place`;
  });
  return rows.map(({ at }) => at.toISOString());
}

describe("credits are refilled at 00:00:00.000 UTC, to the millisecond, whatever the time zone of the session:", () => {
  it.each(Object.entries(refills))("%s", async (_what, { interval, day, dates }) => {
    const times = dates.map((date) => Date.parse(`${date}T00:00:00.000Z`));
    const moments = times.flatMap((time, index) => {
      const next = times[index + 1];
      return next === undefined ? [time] : [time, time + 1, (time + next) / 2, next - 1];
    });
    const expected = dates.flatMap((date, index) =>
      Array(index < dates.length - 1 ? 4 : 1).fill(`${date}T00:00:00.000Z`),
    );
    for (const zone of zones) expect(await lastRefills(zone, interval, day, moments), zone).toEqual(expected);
  });
});

describe("credits at a moment", () => {
  interface Row {
    readonly remaining: number;
    readonly refilledAt: string;
  }

  /** Credits with a refill of 100 on each day or on the 1st, which were last refilled on 10 May. */
  async function creditsAt(remaining: number, interval: "daily" | "monthly" | null, moment: string): Promise<Row> {
    const [row] = await sql<Row[]>`
      select (credits).remaining::int, to_char((credits).refilled_at at time zone 'UTC', 'YYYY-MM-DD') as "refilledAt"
      from credits_at(row('key_1', ${remaining}::bigint, ${interval}::text, ${interval && 100}::bigint,
        ${interval === "monthly" ? 1 : null}::smallint, timestamptz '2027-05-10T00:00:00Z')::key_credits,
        ${moment}::timestamptz) as credits`;
    return row ?? expect.fail("no row");
  }

  it.each([
    ["nothing is refilled before it is due", 7, "daily", "2027-05-10T23:59:59.999Z", 7, "2027-05-10"],
    ["a due refill raises them to its amount", 7, "daily", "2027-05-11T00:00:00.000Z", 100, "2027-05-11"],
    ["many due refills count once", 7, "daily", "2028-05-10T12:00:00.000Z", 100, "2028-05-10"],
    ["a refill takes nothing away", 170, "daily", "2027-05-11T00:00:00.000Z", 170, "2027-05-11"],
    ["a monthly refill waits for its day", 7, "monthly", "2027-05-31T23:59:59.999Z", 7, "2027-05-10"],
    ["a monthly refill comes on its day", 0, "monthly", "2027-06-01T00:00:00.000Z", 100, "2027-06-01"],
    ["many due monthly refills count once", 0, "monthly", "2029-02-28T00:00:00.000Z", 100, "2029-02-01"],
    ["a clock that is behind undoes nothing", 50, "daily", "2027-05-09T12:00:00.000Z", 50, "2027-05-10"],
    [
      "after a clock that was far ahead, nothing is refilled at once",
      7,
      "daily",
      "2027-05-08T12:00:00.000Z",
      7,
      "2027-05-08",
    ],
    ["without a refill they stay", 7, null, "2030-01-01T00:00:00.000Z", 7, "2027-05-10"],
  ] as const)("%s", async (_rule, before, interval, moment, remaining, refilledAt) => {
    expect(await creditsAt(before, interval, moment)).toEqual({ remaining, refilledAt });
  });
});
