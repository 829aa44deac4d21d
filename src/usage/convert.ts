import type { MessageInitShape } from "@bufbuild/protobuf";
import { timestampDate, timestampFromDate } from "@bufbuild/protobuf/wkt";
import type { UsagePeriod, UsageSchema } from "../../gen/latchkey/v1/usage_pb.js";
import { invalidInput } from "../errors.js";
import type { Period, UsageRow } from "./store.js";

/** The maximum number of parts of a period. */
const maxParts = 1_000;

const hourMs = 3_600_000;
const dayMs = 24 * hourMs;

/** How time is divided, in UTC: the number of the part that contains a time, and the beginning of a part. */
interface Division {
  numberOf(time: Date): number;
  beginningOf(part: number): Date;
}

const divisions: Readonly<Record<Period["granularity"], Division>> = {
  hour: equalParts(hourMs),
  day: equalParts(dayMs),
  month: {
    numberOf: (time) => 12 * time.getUTCFullYear() + time.getUTCMonth(),
    beginningOf(month) {
      const time = new Date(0);
      time.setUTCFullYear(Math.floor(month / 12), month % 12, 1); // Date.UTC would take the year 50 for 1950
      return time;
    },
  },
};

function equalParts(ms: number): Division {
  return {
    numberOf: (time) => Math.floor(time.getTime() / ms),
    beginningOf: (part) => new Date(part * ms),
  };
}

/** The requested period, which begins with the part that contains `from`. Undefined: the default. */
export function toPeriod(period: UsagePeriod | undefined): Period | undefined {
  if (period?.from === undefined || period.to === undefined) return undefined;
  const granularity = period.granularity as Period["granularity"];
  const { numberOf, beginningOf } = divisions[granularity];
  const to = timestampDate(period.to);
  const first = numberOf(timestampDate(period.from));
  const parts = numberOf(new Date(to.getTime() - 1)) - first + 1;
  if (parts > maxParts) {
    const message = `must have at most ${maxParts} parts; it has ${parts}. Choose a larger granularity`;
    throw invalidInput([{ location: "period", message }]);
  }
  return { from: beginningOf(first), to, granularity };
}

/** Converts the counts of a part to their message. */
export function toUsage({ time, ...counts }: UsageRow): MessageInitShape<typeof UsageSchema> {
  const total = Object.values(counts).reduce((sum, count) => sum + count, 0n);
  return { time: timestampFromDate(time), total, ...counts };
}
