import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { type BehindProxy, openBehindProxy } from "../../support/behind-proxy.js";
import { type CallOutcome, callGrpc, callHttp } from "../../support/clients/timed-calls.js";
import { operatorKey } from "../../support/harness.js";
import { startStopwatch } from "../../support/stopwatch.js";

let setting: BehindProxy;
beforeAll(async () => {
  setting = await openBehindProxy();
});
afterAll(() => setting.close());

const served = ({ outcome }: CallOutcome) => outcome === "OK";

/** Calls that need PostgreSQL beside the lease, and one that does not. */
function everyCall(): Promise<CallOutcome[]> {
  const { app, key } = setting;
  return Promise.all(
    [callHttp, callGrpc].flatMap((call) => [
      call(app, "listKeys", key),
      call(app, "verifyKey", key, { key }),
      call(app, "listWorkspaces", operatorKey),
    ]),
  );
}

// As with a firewall that has lost the state of its connections.
describe("when the network drops the packets of existing connections, but lets new ones through", () => {
  it("calls are soon served on new connections, and earlier calls are refused as unavailable", async () => {
    await Promise.all(Array.from({ length: 5 }, everyCall));
    setting.proxy.blackhole();
    const elapsed = startStopwatch();
    const answers: CallOutcome[] = [];
    for (let last: CallOutcome[] = []; last.length === 0 || !last.every(served); answers.push(...last)) {
      last = await everyCall();
      if (elapsed() > 15_000) break;
    }
    const summary = answers.map(({ outcome, ms }) => `${outcome} after ${Math.round(ms)} ms`).join(", ");
    expect(elapsed(), summary).toBeLessThan(4_000);
    expect(answers.filter(({ outcome }) => outcome !== "OK" && outcome !== "UNAVAILABLE")).toEqual([]);
  });
});
