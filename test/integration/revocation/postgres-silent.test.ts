import { setTimeout as sleep } from "node:timers/promises";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { type BehindProxy, openBehindProxy } from "../../support/behind-proxy.js";
import { send } from "../../support/clients/http-requests.js";
import { type CallOutcome, callGrpc, callHttp } from "../../support/clients/timed-calls.js";
import { operatorKey } from "../../support/harness.js";
import { startStopwatch } from "../../support/stopwatch.js";

let setting: BehindProxy;
beforeEach(async () => {
  setting = await openBehindProxy();
});
afterEach(() => setting.close());

/** Locks a table for the duration of `meanwhile`. */
async function locking<T>(table: string, meanwhile: () => Promise<T>): Promise<T> {
  const own = await setting.sql.reserve();
  try {
    await own`begin`;
    await own`lock table ${own(table)} in access exclusive mode`;
    return await meanwhile();
  } finally {
    await own`rollback`;
    own.release();
  }
}

/** The number of sessions of the service that wait in PostgreSQL for a lock. */
async function countWaiting(): Promise<number> {
  const [row] = await setting.sql<{ count: number }[]>`
    select count(*)::int from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()`;
  return row?.count ?? 0;
}

const served = ({ outcome }: CallOutcome) => outcome === "OK";

/** Changes that write to the table of audit events, and so wait while it is locked. */
function startChanges(): Promise<CallOutcome>[] {
  const { app, key } = setting;
  return [callHttp, callGrpc].flatMap((call) => [
    call(app, "createKey", key),
    call(app, "createWorkspace", operatorKey, { name: "another" }),
  ]);
}

describe("when PostgreSQL stops answering", () => {
  it("calls that already wait for it are refused as unavailable within about a second", async () => {
    await locking("audit_events", async () => {
      const waiting = startChanges();
      await expect.poll(countWaiting, { timeout: 5_000 }).toBe(waiting.length);
      setting.proxy.stall();
      const elapsed = startStopwatch();
      const answers = await Promise.all(waiting);
      expect(answers.map(({ outcome }) => outcome)).toEqual(waiting.map(() => "UNAVAILABLE"));
      expect(elapsed()).toBeLessThan(2_000);
    });
  });

  it("no call outlives its deadline", async () => {
    const { app, key } = setting;
    await locking("audit_events", async () => {
      const late = await callGrpc(app, "createKey", key, {}, 300);
      expect(late.outcome).toBe("DEADLINE_EXCEEDED");
      expect(late.ms).toBeLessThan(1_300);
    });
    setting.proxy.stall();
    for (let round = 0; round < 5; round++) {
      const { outcome, ms } = await callGrpc(app, "listKeys", key, {}, 300);
      expect(outcome).toMatch(/^(DEADLINE_EXCEEDED|UNAVAILABLE)$/);
      expect(ms).toBeLessThan(1_300);
    }
  });
});

describe("while the table of keys is locked for 2 s", () => {
  it("sessions do not pile up in PostgreSQL, and calls are served again afterwards", async () => {
    const { app, key } = setting;
    const verify = () => callHttp(app, "verifyKey", key, { key });
    await expect.poll(verify, { timeout: 5_000 }).toSatisfy(served);
    let maxWaiting = 0;
    const called = await locking("keys", async () => {
      const calls: Promise<CallOutcome>[] = [];
      for (const until = performance.now() + 2_000; performance.now() < until; await sleep(100)) {
        for (let count = 0; count < 20; count++) calls.push(verify());
        maxWaiting = Math.max(maxWaiting, await countWaiting());
      }
      return calls;
    });
    const outcomes = (await Promise.all(called)).map(({ outcome }) => outcome);
    expect(outcomes.filter((outcome) => !/^(OK|UNAVAILABLE)$/.test(outcome))).toEqual([]);
    // Cached keys may be used for the rest of the lease, and the last calls may have been served after the lock.
    expect(outcomes.filter((outcome) => outcome === "UNAVAILABLE").length).toBeGreaterThan(called.length / 2);
    // The poll for changes, the times of last use, a spot check, and one statement that is just being cancelled.
    expect(maxWaiting).toBeLessThanOrEqual(4);
    const readiness = async () => (await send(app.httpUrl, "/readyz", { method: "GET" })).status;
    await expect.poll(readiness, { timeout: 3_000 }).toBe(200);
    await expect.poll(() => callHttp(app, "listKeys", key), { timeout: 3_000 }).toSatisfy(served);
    await expect.poll(countWaiting).toBe(0);
  });
});
