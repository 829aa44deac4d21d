import { httpSide, startBareVerify, verifyRequests } from "../http-verify.js";
import { createScene, startLatchkey } from "../latchkey.js";
import { compareThroughput } from "../rounds.js";
import type { Row } from "../row.js";

const title = "HTTP keys.verifyKey / bare Fastify route with the same bodies";

/** The caller authenticated and the key verified, both under the lease, against a route that does nothing. */
export const httpVerify: Row = {
  name: "http-verify",
  title,
  async measure(bench) {
    const latchkey = await startLatchkey(bench);
    const scene = await createScene(latchkey);
    const bare = await startBareVerify(bench, latchkey, scene);
    const ours = await httpSide(bench, { ...latchkey, port: latchkey.httpPort }, verifyRequests(scene));
    const theirs = await httpSide(bench, bare, bare.requests);
    return [await compareThroughput(bench, { title, goal: { atLeast: 0.7 } }, ours, theirs)];
  },
};
