import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { maxMessageBytes } from "../../src/rpc/pipeline.js";
import { largeBodies } from "../robustness/fuzz/large-bodies.js";
import { operationNamed } from "../robustness/fuzz/operations.js";
import { readOutcome } from "../robustness/fuzz/outcome.js";
import { createSender, type Sender } from "../robustness/fuzz/send.js";
import { protocolNames, sentTo } from "../robustness/fuzz/sent.js";
import { createWorkspace } from "../support/clients/http-requests.js";
import { openTestApp, type TestApp } from "../support/harness.js";
import { watchLoop, workUnit } from "../support/loop-watch.js";

let app: TestApp;
let sender: Sender;
let key: string;
beforeAll(async () => {
  app = await openTestApp();
  sender = createSender(app);
  ({ key } = await createWorkspace(app.httpUrl));
});
afterAll(async () => {
  sender.close();
  await app.close();
});

/** As large as a request can be. */
const size = Math.min(maxMessageBytes, 128 * 1024) - 64;

/** The best of many, so that it is no longer on a busy machine. */
const unit = workUnit();

/** How much longer than a plain JSON.parse of as many bytes the service may take to refuse them. */
const mostUnits = 8;

describe.each(["createKey", "updateKey", "verifyKey"])("a large %s", (name) => {
  const operation = operationNamed(name);

  describe.each(protocolNames)("through %s", (protocol) => {
    it.each(largeBodies(operation, protocol).map((large) => [large.name, large.location, large] as const))(
      "of %s is refused by naming %s, and stops nobody else",
      async (_name, location, large) => {
        const sent = sentTo(protocol, operation, key, large.make(size));
        const times: number[] = [];
        // The best of a few: the first call compiles, and any may meet the garbage collector.
        for (let attempt = 0; attempt < 8 && Math.min(...times) > mostUnits * unit; attempt++) {
          const watch = watchLoop();
          const answer = await sender.send(sent).finally(watch.stop);
          times.push(watch.longest());
          const outcome = readOutcome(operation, answer);
          expect(outcome).toMatchObject({ ok: false, code: "application/invalid_input" });
          expect(outcome.ok ? [] : outcome.locations[0]).toContain(location);
        }
        expect(Math.min(...times) / unit, `${times.map((ms) => ms.toFixed(1))} ms`).toBeLessThan(mostUnits);
      },
    );
  });
});
