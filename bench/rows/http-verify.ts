import { httpSide, startBareVerify, verifyRequests } from "../http-verify.js";
import { createFixture, startLatchkey } from "../latchkey.js";
import { compareThroughput } from "../rounds.js";
import type { Row } from "../row.js";

const title = "HTTP keys.verifyKey / bare Fastify route with the same bodies";

/** Latchkey authenticates the caller and verifies the key, both cached under the lease. The bare route does nothing. */
export const httpVerify: Row = {
  name: "http-verify",
  title,
  async measure(bench) {
    const latchkey = await startLatchkey(bench);
    const fixture = await createFixture(latchkey);
    const bare = await startBareVerify(bench, latchkey, fixture);
    const ours = await httpSide(bench, { ...latchkey, port: latchkey.httpPort }, verifyRequests(fixture));
    const theirs = await httpSide(bench, bare, bare.requests);
    return [await compareThroughput(bench, { title, goal: { atLeast: 0.7 } }, ours, theirs)];
  },
};
