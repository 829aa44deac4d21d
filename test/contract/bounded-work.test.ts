import { afterAll, describe, expect, it } from "vitest";
import { maxMessageBytes } from "../../src/rpc/pipeline.js";
import { largeBodies } from "../robustness/fuzz/large-bodies.js";
import { operationNamed } from "../robustness/fuzz/operations.js";
import { readOutcome } from "../robustness/fuzz/outcome.js";
import { expectSuccess, post } from "../support/clients/http-requests.js";
import { openRawClient } from "../support/clients/raw-client.js";
import { protocolNames, toRawRequest } from "../support/clients/raw-request.js";
import { openFileService } from "../support/file-service.js";
import { watchLoop, workUnit } from "../support/loop-watch.js";

const { app, key } = await openFileService();
const client = openRawClient(app);
afterAll(() => client.close());

/** Just under the maximum request size. */
const size = Math.min(maxMessageBytes, 128 * 1024) - 64;

/** The minimum of many measurements, so that load on the machine does not inflate it. */
const unit = workUnit();

/** Refusing a body may take at most this many times as long as a plain JSON.parse of as many bytes. */
const maxUnits = 8;

/** The shortest time in milliseconds that a call blocks the event loop, of several attempts. */
async function shortestBlock(makeCall: () => Promise<unknown>): Promise<number> {
  const times: number[] = [];
  for (let attempt = 0; attempt < 20; attempt++) {
    const watch = watchLoop();
    await makeCall().finally(watch.stop);
    times.push(watch.longest());
  }
  return Math.min(...times);
}

it("a query of hundreds of names against thousands of permissions adds little to the time of the call", async () => {
  const permissions = (role: number) => Array.from({ length: 100 }, (_, index) => `role${role}.thing${index}.*`);
  const roles = Array.from({ length: 20 }, (_, role) => `role${role}`);
  const call = async (operation: string, body: object) => {
    return expectSuccess(await post(app.httpUrl, `/v2/${operation}`, key, body)) as Record<string, unknown>;
  };
  for (const [index, name] of roles.entries()) {
    await call("permissions.createRole", { name, permissions: permissions(index) });
  }
  const { key: heavy } = await call("keys.createKey", { roles });
  const query = Array(200).fill("a").join(" OR ");
  const without = await shortestBlock(() => call("keys.verifyKey", { key: heavy }));
  const refused = await shortestBlock(() => call("keys.verifyKey", { key: heavy, permissions: query }));
  expect(refused).toBeLessThan(4 * without);
});

describe.each(["createKey", "updateKey", "verifyKey"])("a large %s", (name) => {
  const operation = operationNamed(name);

  describe.each(protocolNames)("through %s", (protocol) => {
    it.each(largeBodies(operation, protocol).map((large) => [large.name, large.location, large] as const))(
      "of %s is refused by naming %s, and does not block the event loop for other calls",
      async (_name, location, large) => {
        const raw = toRawRequest(protocol, operation, key, large.make(size));
        const times: number[] = [];
        // The minimum of several attempts: the first call compiles, and the garbage collector may interrupt any of
        // them.
        for (let attempt = 0; attempt < 8 && Math.min(...times) > maxUnits * unit; attempt++) {
          const watch = watchLoop();
          const response = await client.send(raw).finally(watch.stop);
          times.push(watch.longest());
          const outcome = readOutcome(operation, response);
          expect(outcome).toMatchObject({ ok: false, code: "application/invalid_input" });
          expect(outcome.ok ? [] : outcome.locations[0]).toContain(location);
        }
        expect(Math.min(...times) / unit, `${times.map((ms) => ms.toFixed(1))} ms`).toBeLessThan(maxUnits);
      },
    );
  });
});
