import { join } from "node:path";
import type { Bench } from "../bench.js";
import { httpSide, verifyRequests } from "../http-verify.js";
import { createScene, startLatchkey } from "../latchkey.js";
import { type HttpRequest, postRequest } from "../load/http.js";
import { installPeers, peersFolder } from "../peers.js";
import { compareThroughput } from "../rounds.js";
import type { Row } from "../row.js";
import { portOf } from "../sides.js";

const title = "HTTP keys.verifyKey / better-auth's verifyApiKey on the same PostgreSQL";

/** A library for the same purpose that asks the database each time. */
export const betterAuth: Row = {
  name: "better-auth",
  title,
  async measure(bench) {
    await installPeers(bench.progress);
    const latchkey = await startLatchkey(bench);
    const scene = await createScene(latchkey);
    const peer = await startBetterAuth(bench);
    const ours = await httpSide(bench, { ...latchkey, port: latchkey.httpPort }, verifyRequests(scene));
    const theirs = await httpSide(bench, peer, await peerRequests(peer.port, scene.keys.length));
    return [await compareThroughput(bench, { title, goal: { atLeast: 15 } }, ours, theirs)];
  },
};

async function startBetterAuth(bench: Bench) {
  const server = await bench.startServer({
    name: "better-auth",
    program: [join(peersFolder, "better-auth.mjs")],
    env: { DATABASE_URL: await bench.createDatabase() },
    ready: /^ready on .+$/m,
  });
  return { server, port: portOf(server) };
}

/** Has it make as many keys, alike, and asks about them in the same way. */
async function peerRequests(port: number, count: number): Promise<HttpRequest[]> {
  return Promise.all(
    Array.from({ length: count }, async () => {
      const response = await fetch(`http://127.0.0.1:${port}/create`, { method: "POST" });
      const { id, key } = (await response.json()) as { id: string; key: string };
      const body = { key, permissions: { documents: ["read"] } };
      return {
        bytes: postRequest("/verify", body, "not-asked-for"),
        // A key that is not valid is answered with `"key":null`.
        expected: `"id":"${id}"}}`,
      };
    }),
  );
}
