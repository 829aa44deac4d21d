// How rate limits, refills and periods are written on the command line. The commands print them in the same form.
import type { MessageInitShape } from "@bufbuild/protobuf";
import type { Timestamp } from "@bufbuild/protobuf/wkt";
import { timestampFromMs } from "@bufbuild/protobuf/wkt";
import { type Command, InvalidArgumentError } from "commander";
import type { Credits, CreditsRefill, CreditsRefillSchema } from "../../gen/latchkey/v1/credits_pb.js";
import type {
  RateLimit,
  RateLimitCheckSchema,
  RateLimitSettingsSchema,
  RateLimitState,
} from "../../gen/latchkey/v1/rate_limit_pb.js";
import type { Usage, UsagePeriodSchema } from "../../gen/latchkey/v1/usage_pb.js";
import { count, exact } from "./command.js";
import type { Columns } from "./output.js";
import { time, unitsMs } from "./time-text.js";

/** A limit and the length of its window in milliseconds. */
export interface LimitPerWindow {
  readonly limit: bigint;
  readonly duration: bigint;
}

export type RateLimitFlag = MessageInitShape<typeof RateLimitSettingsSchema>;
export type RateLimitCheckFlag = MessageInitShape<typeof RateLimitCheckSchema>;
export type RefillFlag = MessageInitShape<typeof CreditsRefillSchema>;

/** A description of the text of a rate limit, for the help. */
export const rateLimitHelp =
  "a rate limit as name=limit/duration, such as `requests=100/1m`; with `,auto` at its end, every verification counts; can be given several times";

/** A description of the text of a refill, for the help. */
export const refillHelp = "when credits are refilled: `1000/daily`, `1000/monthly` or, on a day, `1000/monthly:31`";

/** Parses `100/1m`. */
export function limitPerWindow(text: string): LimitPerWindow {
  const [, limit = "", units = "", unit = ""] = /^(\d+)\/(\d+)(ms|s|m|h|d|w)$/.exec(text) ?? [];
  if (unit === "") {
    throw new InvalidArgumentError(
      "It must be a limit and a duration, such as 100/1m. Units are ms, s, m, h, d and w.",
    );
  }
  const durationMs = exact(count(units) * unitsMs[unit as keyof typeof unitsMs]);
  return { limit: BigInt(count(limit)), duration: BigInt(durationMs) };
}

/** Parses `requests=100/1m,auto`, for a flag that can be given several times. */
export function rateLimit(text: string, collected: RateLimitFlag[] = []): RateLimitFlag[] {
  const autoApply = text.endsWith(",auto");
  const { name, rest } = namePartOf(autoApply ? text.slice(0, -",auto".length) : text);
  if (rest === undefined) throw new InvalidArgumentError("It must have a name, such as requests=100/1m.");
  return [...collected, { name, ...limitPerWindow(rest), autoApply }];
}

/** Parses the rate limit of a verification: the name of a configured one, or `requests=100/1m`. */
export function rateLimitCheck(text: string, collected: RateLimitCheckFlag[] = []): RateLimitCheckFlag[] {
  const { name, rest } = namePartOf(text);
  return [...collected, { name, ...(rest !== undefined && limitPerWindow(rest)) }];
}

/** A name may contain `=`; a limit does not. */
function namePartOf(text: string): { name: string; rest: string | undefined } {
  const at = text.lastIndexOf("=");
  return at === -1 ? { name: text, rest: undefined } : { name: text.slice(0, at), rest: text.slice(at + 1) };
}

/** Parses `1000/monthly:31`. */
export function refill(text: string): RefillFlag {
  const [, amount = "", interval = "", day] = /^(\d+)\/(daily|monthly)(?::(\d\d?))?$/.exec(text) ?? [];
  if (interval === "") {
    throw new InvalidArgumentError("It must be an amount and an interval, such as 1000/daily or 1000/monthly:31.");
  }
  return { amount: BigInt(count(amount)), interval, ...(day !== undefined && { refillDay: Number(day) }) };
}

/** The text of a rate limit of a key or an identity. */
export function showRateLimit({ name, limit, duration, autoApply }: RateLimit): string {
  return `${name}=${showLimit({ limit, duration })}${autoApply ? ",auto" : ""}`;
}

/** The text of a rate limit after a verification. */
export function showRateLimitState({ name, limit, duration, remaining, exceeded, perProcess }: RateLimitState): string {
  const state = exceeded ? "exceeded" : `${remaining} left`;
  return `${name}=${showLimit({ limit, duration })} (${state}${perProcess ? ", counted per process" : ""})`;
}

/** `100/1m`, with the largest unit that has no fraction. */
export function showLimit({ limit, duration }: LimitPerWindow): string {
  const fitting = Object.entries(unitsMs).filter(([, ms]) => duration % BigInt(ms) === 0n);
  const [unit, ms] = fitting.at(-1) ?? ["ms", 1];
  return `${limit}/${duration / BigInt(ms)}${unit}`;
}

/** The text of a refill. */
export function showRefill({ refill }: Credits): string | undefined {
  return refill && showInterval(refill);
}

function showInterval({ amount, interval, refillDay }: CreditsRefill): string {
  return `${amount}/${interval}${refillDay === undefined ? "" : `:${refillDay}`}`;
}

/** The flags of a command that shows usage. */
export interface UsageFlags {
  readonly from?: Timestamp;
  readonly to?: Timestamp;
  readonly granularity?: string;
  readonly tag?: string;
}

/** Adds the flags of a period. */
export function withUsageFlags(command: Command): Command {
  return command
    .option("--from <time>", "the beginning of the period (default: 24 hours ago)", time)
    .option("--to <time>", "the end of the period (default: now)", time)
    .option("--granularity <part>", "the length of a line: `hour` (the default), `day` or `month`, in UTC")
    .option("--tag <tag>", "only verifications with this tag");
}

/** The period of the flags; undefined if none of them is given. */
export function periodOf({
  from,
  to,
  granularity,
}: UsageFlags): MessageInitShape<typeof UsagePeriodSchema> | undefined {
  if (from === undefined && to === undefined && granularity === undefined) return undefined;
  const now = Date.now();
  return {
    from: from ?? timestampFromMs(now - unitsMs.d),
    to: to ?? timestampFromMs(now),
    granularity: granularity ?? "hour",
  };
}

/** The columns of a table of verifications. */
export const usageColumns: Columns<Usage> = {
  TIME: ({ time }) => time,
  TOTAL: ({ total }) => total,
  VALID: ({ valid }) => valid,
  "RATE LIMITED": ({ rateLimited }) => rateLimited,
  "USAGE EXCEEDED": ({ usageExceeded }) => usageExceeded,
  "INSUFFICIENT PERMISSIONS": ({ insufficientPermissions }) => insufficientPermissions,
  DISABLED: ({ disabled }) => disabled,
  EXPIRED: ({ expired }) => expired,
};
