import { httpSide, startBareVerify, verifyRequests } from "../http-verify.js";
import { createFixture, startLatchkey } from "../latchkey.js";
import { compareThroughput } from "../rounds.js";
import type { Row } from "../row.js";

const title = "HTTP keys.verifyKey of a key with two rate limits / bare Fastify route that runs one Redis script";

/** Limits that no run reaches. */
const ratelimits = ["requests", "tokens"].map((name) => {
  return { name, limit: 1_000_000_000, duration: 3_600_000, autoApply: true };
});

/** Both sides make one Redis round trip, on the same server. */
export const rateLimits: Row = {
  name: "rate-limits",
  title,
  async measure(bench) {
    const env = { REDIS_URL: bench.redisUrl };
    const latchkey = await startLatchkey(bench, { env });
    const fixture = await createFixture(latchkey, 100, { ratelimits });
    const bare = await startBareVerify(bench, latchkey, fixture, "bare-limits", env);
    const ours = await httpSide(bench, { ...latchkey, port: latchkey.httpPort }, verifyRequests(fixture));
    const theirs = await httpSide(bench, bare, bare.requests);
    return [await compareThroughput(bench, { title, goal: { atLeast: 0.6 } }, ours, theirs)];
  },
};
