import { hash } from "node:crypto";
import type { RedisCache } from "../storage/redis/client.js";
import type { CounterReading, CounterUse } from "./counters.js";

/** What the script says of a check. */
const outcomeCodes = { compared: 0, notBegun: 1, unreadable: 2 };

/** Uses that are counted together: all of them or none. */
export interface CountedUses {
  readonly uses: readonly CounterUse[];
  /** Whether a window may begin. If one would have to begin and may not, nothing is counted. */
  readonly mayBegin: boolean;
}

/** What the script says of a check in which it has counted nothing, because a window would have to begin and may not. */
export interface NotBegun {
  /** The counts, in the order of the uses; undefined for a use without an open window. All are within the limits. */
  readonly open: readonly (CounterReading | undefined)[];
}

/**
 * Does one check after the other. Each counts all its uses, or none if one of them would exceed its limit. The answer
 * contains for each check its outcome, and for each use what was used before and the remaining milliseconds of the window; a
 * negative number if there is no window. A script is atomic, and time stands still in it: no window ends between its commands.
 *
 * KEYS: the counters. ARGV[1]: for each check the number of its uses; for each of them its limit, its duration and the cost;
 * then 1 if a window may begin, else 0. Arguments and answer are one JSON text each: with an argument and an element for each
 * number, ioredis took 16 µs of CPU time for a check with two uses, instead of 10 µs.
 *
 * A counter that contains no whole number fails its own check, and no other one. After the clock of Redis was set back, a
 * window would end too late, so it is shortened.
 */
const script = `
local args, answer, key, arg = cjson.decode(ARGV[1]), {}, 1, 1
while key <= #KEYS do
  local uses = args[arg]
  local outcome, passed, begins, first = ${outcomeCodes.compared}, true, false, #answer + 1
  answer[first] = outcome
  for i = 0, uses - 1 do
    local text = redis.pcall('GET', KEYS[key + i]) or '0'
    local used = type(text) == 'string' and tonumber(text:match('^%d+$'))
    if not used then outcome, used = ${outcomeCodes.unreadable}, 0 end
    local left = redis.call('PTTL', KEYS[key + i])
    local limit, duration, cost = args[arg + 3 * i + 1], args[arg + 3 * i + 2], args[arg + 3 * i + 3]
    if left > duration then
      redis.call('PEXPIRE', KEYS[key + i], duration)
      left = duration
    end
    if limit == 0 or used + cost > limit then passed = false end
    if cost > 0 and left < 0 then begins = true end
    answer[first + 2 * i + 1] = used
    answer[first + 2 * i + 2] = left
  end
  passed = passed and outcome == ${outcomeCodes.compared}
  if passed and begins and args[arg + 3 * uses + 1] == 0 then passed, outcome = false, ${outcomeCodes.notBegun} end
  if passed then
    for i = 0, uses - 1 do
      local cost = args[arg + 3 * i + 3]
      if cost > 0 then
        redis.call('INCRBY', KEYS[key + i], cost)
        if answer[first + 2 * i + 2] < 0 then redis.call('PEXPIRE', KEYS[key + i], args[arg + 3 * i + 2]) end
      end
    end
  end
  answer[first] = outcome
  key, arg = key + uses, arg + 3 * uses + 2
end
return cjson.encode(answer)`;

const sha1 = hash("sha1", script, "hex");

/** The comparison of the script. A limit of 0 refuses also a use that costs nothing. */
export function exceedsLimit({ limit, cost }: CounterUse, used: number): boolean {
  return limit === 0 || used + cost > limit;
}

/**
 * Runs the script. Resolves for each check to the counts from before, and to undefined if a counter cannot be read. Rejects if
 * the answer is not that of the script.
 */
export async function countInRedis(
  client: RedisCache["client"],
  checks: readonly CountedUses[],
): Promise<(CounterReading[] | NotBegun | undefined)[]> {
  const keys = checks.flatMap(({ uses }) => uses.map(({ key }) => key));
  const values: number[] = [];
  for (const { uses, mayBegin } of checks) {
    values.push(uses.length);
    for (const { limit, durationMs, cost } of uses) values.push(limit, durationMs, cost);
    values.push(mayBegin ? 1 : 0);
  }
  const args = JSON.stringify(values);
  const answer = await client.evalsha(sha1, keys.length, ...keys, args).catch((error: unknown) => {
    // The server was restarted, or has never run the script. EVAL also stores it.
    if (!(error instanceof Error && error.message.startsWith("NOSCRIPT"))) throw error;
    return client.eval(script, keys.length, ...keys, args);
  });
  const numbers = parseNumbers(answer);
  let at = 0;
  return checks.map(({ uses }) => {
    const outcome = numbers[at];
    const first = at + 1;
    const readings = readAnswer(numbers, first, uses);
    at = first + 2 * uses.length;
    if (outcome === outcomeCodes.compared) return readings;
    if (outcome !== outcomeCodes.notBegun) return undefined;
    const isOpen = (index: number) => Number(numbers[first + 2 * index + 1]) >= 0;
    return { open: readings.map((reading, index) => (isOpen(index) ? reading : undefined)) };
  });
}

function parseNumbers(answer: unknown): readonly unknown[] {
  const numbers: unknown = typeof answer === "string" ? JSON.parse(answer) : undefined;
  return Array.isArray(numbers) ? numbers : [];
}

function readAnswer(numbers: readonly unknown[], from: number, uses: readonly CounterUse[]): CounterReading[] {
  return uses.map(({ durationMs }, index) => {
    const used = numbers[from + 2 * index];
    const msLeft = numbers[from + 2 * index + 1];
    if (typeof used !== "number" || typeof msLeft !== "number") throw new Error("Redis returned no counts");
    // In its last moment a window has 0 ms left. Without a window, the next one will have its whole duration.
    return { used, msLeft: msLeft < 0 ? durationMs : Math.max(1, msLeft) };
  });
}
