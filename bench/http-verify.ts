import type { Bench } from "./bench.js";
import type { Latchkey, Scene } from "./latchkey.js";
import { type HttpRequest, inTurn, openHttpLoad, postRequest } from "./load/http.js";
import type { Side } from "./rounds.js";
import type { Server } from "./servers.js";
import { startSide } from "./sides.js";

const path = "/v2/keys.verifyKey";

/** How many requests an HTTP load has under way. */
export const httpConnections = 50;

/** A server under an HTTP load of these requests in turn. */
export async function httpSide(
  bench: Bench,
  { server, port }: { server: Server; port: number },
  requests: readonly HttpRequest[],
): Promise<Side> {
  const load = await openHttpLoad({ port, connections: httpConnections, next: inTurn(requests) });
  bench.defer(() => load.close());
  return { name: server.name, server, load };
}

/** One request for each key of a scene. */
export function verifyRequests({ caller, keys }: Scene): HttpRequest[] {
  return keys.map((key) => verifyRequest(caller, key));
}

/** The request for a key, whose answer must be about that key. */
export function verifyRequest(caller: string, { keyId, secret }: { keyId: string; secret: string }): HttpRequest {
  return {
    bytes: postRequest(path, bodyFor(secret), caller),
    expected: `"valid":true,"code":"VALID","keyId":"${keyId}"`,
  };
}

/** Bare Fastify, which answers whatever it is asked as Latchkey answers for the scene's first key. */
export async function startBareVerify(bench: Bench, latchkey: Latchkey, scene: Scene) {
  const [first] = scene.keys;
  const answer = await latchkey.answer(path, scene.caller, bodyFor(`${first?.secret}`));
  const bare = await startSide(bench, "bare Fastify", "bare-fastify", { ANSWER: answer });
  const expected = `${verifyRequests(scene)[0]?.expected}`;
  return { ...bare, requests: verifyRequests(scene).map((request) => ({ ...request, expected })) };
}

/** Whether the key is valid, and may do this. */
function bodyFor(secret: string) {
  return { key: secret, permissions: "documents.read" };
}
