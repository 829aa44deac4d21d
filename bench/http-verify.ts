import { startBaseline } from "./baselines.js";
import type { Bench } from "./bench.js";
import type { Fixture, Latchkey } from "./latchkey.js";
import { type HttpRequest, inTurn, openHttpLoad, postRequest } from "./load/http.js";
import type { Side } from "./rounds.js";
import type { Server } from "./servers.js";

const path = "/v2/keys.verifyKey";

/** Requests in flight in an HTTP load. */
export const httpConnections = 50;

/** Puts an HTTP load on a server that cycles through these requests. */
export async function httpSide(
  bench: Bench,
  { server, port }: { server: Server; port: number },
  requests: readonly HttpRequest[],
  connections = httpConnections,
): Promise<Side> {
  const load = await openHttpLoad({ port, connections, next: inTurn(requests) });
  bench.defer(() => load.close());
  return { name: server.name, server, load };
}

/** One request for each key of a fixture. */
export function verifyRequests({ caller, keys }: Fixture): HttpRequest[] {
  return keys.map((key) => verifyRequest(caller, key));
}

/** The request for a key. Its response must contain the id of that key. */
export function verifyRequest(caller: string, { keyId, secret }: { keyId: string; secret: string }): HttpRequest {
  return {
    bytes: postRequest(path, bodyFor(secret), caller),
    expected: `"valid":true,"code":"VALID","keyId":"${keyId}"`,
  };
}

/**
 * Bare Fastify, which returns Latchkey's response for the fixture's first key to every request.
 *
 * @param file the baseline in baselines/
 */
export async function startBareVerify(
  bench: Bench,
  latchkey: Latchkey,
  fixture: Fixture,
  file = "bare-fastify",
  env: NodeJS.ProcessEnv = {},
) {
  const [first] = fixture.keys;
  const response = await latchkey.call(path, fixture.caller, bodyFor(`${first?.secret}`));
  const bare = await startBaseline(bench, "bare Fastify", file, { ...env, RESPONSE: response });
  const expected = `${verifyRequests(fixture)[0]?.expected}`;
  return { ...bare, requests: verifyRequests(fixture).map((request) => ({ ...request, expected })) };
}

/** Asks whether the key is valid and has one permission. */
function bodyFor(secret: string) {
  return { key: secret, permissions: "documents.read" };
}
