import { startBaseline } from "../baselines.js";
import { httpSide } from "../http-verify.js";
import { createFixture, startLatchkey } from "../latchkey.js";
import { postRequest } from "../load/http.js";
import { compareThroughput } from "../rounds.js";
import type { Row } from "../row.js";

const title = "HTTP identities.getIdentity / the same query in a bare Fastify route with postgres.js";
const path = "/v2/identities.getIdentity";

/** Each call reads one row from PostgreSQL, on both sides from the same table. */
export const httpIdentity: Row = {
  name: "http-identity",
  title,
  async measure(bench) {
    const latchkey = await startLatchkey(bench);
    const { workspaceId, caller, keys } = await createFixture(latchkey);
    const bare = await startBaseline(bench, "bare Fastify with postgres.js", "bare-identity", {
      DATABASE_URL: latchkey.databaseUrl,
      WORKSPACE_ID: workspaceId,
    });
    const requests = keys.map(({ externalId }) => ({
      bytes: postRequest(path, { externalId }, caller),
      expected: `"externalId":"${externalId}","meta":{"plan":"pro"},"createdAt":`,
    }));
    const ours = await httpSide(bench, { ...latchkey, port: latchkey.httpPort }, requests);
    const theirs = await httpSide(bench, bare, requests);
    return [await compareThroughput(bench, { title, goal: { atLeast: 0.8 } }, ours, theirs)];
  },
};
