import { hash } from "node:crypto";
import type { RedisCache } from "../storage/redis/client.js";
import type { CounterReading, CounterUse } from "./counters.js";

/**
 * Counts all uses, or none if one of them would exceed its limit. Returns what was used before, and the remaining
 * milliseconds of the window; a negative number if there is no window. A script is atomic, and time stands still in it: no
 * window ends between its commands.
 *
 * KEYS: the counters. ARGV: for each of them its limit, its duration and the cost; then whether a window may begin. If one
 * would have to begin and may not, nothing is counted, and the answer is nil.
 */
const script = `
local answer, passed = {}, true
for i, key in ipairs(KEYS) do
  local used = tonumber(redis.call('GET', key) or '0')
  answer[2 * i - 1] = used
  answer[2 * i] = redis.call('PTTL', key)
  local limit = tonumber(ARGV[3 * i - 2])
  if limit == 0 or used + tonumber(ARGV[3 * i]) > limit then passed = false end
end
if passed and ARGV[#ARGV] == '0' then
  for i in ipairs(KEYS) do
    if ARGV[3 * i] ~= '0' and answer[2 * i] < 0 then return nil end
  end
end
if passed then
  for i, key in ipairs(KEYS) do
    if ARGV[3 * i] ~= '0' then
      redis.call('INCRBY', key, ARGV[3 * i])
      if answer[2 * i] < 0 then redis.call('PEXPIRE', key, ARGV[3 * i - 1]) end
    end
  end
end
return answer`;

const sha1 = hash("sha1", script, "hex");

/** The comparison of the script. A limit of 0 refuses also a use that costs nothing. */
export function exceedsLimit({ limit, cost }: CounterUse, used: number): boolean {
  return limit === 0 || used + cost > limit;
}

/**
 * Runs the script. Resolves to the counts from before, or to null if nothing was counted because no window may begin. Rejects
 * if the answer is not that of the script.
 */
export async function countInRedis(
  client: RedisCache["client"],
  uses: readonly CounterUse[],
  mayBegin: boolean,
): Promise<CounterReading[] | null> {
  const values: (string | number)[] = uses.map(({ key }) => key);
  for (const { limit, durationMs, cost } of uses) values.push(limit, durationMs, cost);
  values.push(mayBegin ? 1 : 0);
  const answer = await client.evalsha(sha1, uses.length, ...values).catch((error: unknown) => {
    // The server was restarted, or has never run the script. EVAL also stores it.
    if (!(error instanceof Error && error.message.startsWith("NOSCRIPT"))) throw error;
    return client.eval(script, uses.length, ...values);
  });
  return answer === null ? null : readAnswer(answer, uses);
}

function readAnswer(answer: unknown, uses: readonly CounterUse[]): CounterReading[] {
  const numbers: readonly unknown[] = Array.isArray(answer) ? answer : [];
  return uses.map(({ durationMs }, index) => {
    const used = numbers[2 * index];
    const msLeft = numbers[2 * index + 1];
    if (typeof used !== "number" || typeof msLeft !== "number") throw new Error("Redis returned no counts");
    // In its last moment a window has 0 ms left. Without a window, the next one will have its whole duration.
    return { used, msLeft: msLeft < 0 ? durationMs : Math.max(1, msLeft) };
  });
}
