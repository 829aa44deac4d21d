import { join } from "node:path";
import { portOf } from "../baselines.js";
import type { Bench } from "../bench.js";
import { competitorsFolder, installCompetitors } from "../competitors.js";
import { httpSide, verifyRequests } from "../http-verify.js";
import { createFixture, startLatchkey } from "../latchkey.js";
import { type HttpRequest, postRequest } from "../load/http.js";
import { compareThroughput } from "../rounds.js";
import type { Row } from "../row.js";

const title = "HTTP keys.verifyKey / better-auth's verifyApiKey on the same PostgreSQL";

/** better-auth has the same purpose, and queries the database for each verification. */
export const betterAuth: Row = {
  name: "better-auth",
  title,
  async measure(bench) {
    await installCompetitors(bench.progress);
    const latchkey = await startLatchkey(bench);
    const fixture = await createFixture(latchkey);
    const competitor = await startBetterAuth(bench);
    const ours = await httpSide(bench, { ...latchkey, port: latchkey.httpPort }, verifyRequests(fixture));
    const theirs = await httpSide(bench, competitor, await competitorRequests(competitor.port, fixture.keys.length));
    return [await compareThroughput(bench, { title, goal: { atLeast: 15 } }, ours, theirs)];
  },
};

async function startBetterAuth(bench: Bench) {
  const server = await bench.startServer({
    name: "better-auth",
    program: [join(competitorsFolder, "better-auth.mjs")],
    env: { DATABASE_URL: await bench.createDatabase() },
    ready: /^ready on .+$/m,
  });
  return { server, port: portOf(server) };
}

/** Creates the same number of similar keys in better-auth, and builds the same kind of requests. */
async function competitorRequests(port: number, count: number): Promise<HttpRequest[]> {
  return Promise.all(
    Array.from({ length: count }, async () => {
      const response = await fetch(`http://127.0.0.1:${port}/create`, { method: "POST" });
      const { id, key } = (await response.json()) as { id: string; key: string };
      const body = { key, permissions: { documents: ["read"] } };
      return {
        bytes: postRequest("/verify", body, "not-needed"),
        // The response for an invalid key contains `"key":null`.
        expected: `"id":"${id}"}}`,
      };
    }),
  );
}
