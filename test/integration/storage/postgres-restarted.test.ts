import { createGrpcTransport } from "@connectrpc/connect-node";
import type postgres from "postgres";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { openSql } from "../../../commands/open-sql.js";
import { createProtobufClient, isLatchkeyError } from "../../../src/client/protobuf.js";
import { createLog } from "../../../src/observe/log.js";
import { listEvents, succeed } from "../../support/calls.js";
import { createWorkspace, post } from "../../support/clients/http-requests.js";
import { type CallOutcome, callGrpc, callHttp } from "../../support/clients/timed-calls.js";
import { openTestApp, type TestApp } from "../../support/harness.js";
import { readMetric } from "../../support/metrics.js";
import { type OwnPostgres, openOwnPostgres } from "../../support/own-postgres.js";

/** The connections of a service: those of the pool, the one of the change poller, and those that spend credits. */
const maxConnections = 14;

let own: OwnPostgres;
let app: TestApp;
let key: string;
let sql: postgres.Sql;
const logged: string[] = [];

beforeAll(async () => {
  own = await openOwnPostgres();
  const write = (line: string) => void logged.push(JSON.parse(line).msg);
  app = await openTestApp({ databaseUrl: own.url, metricsPort: 0, log: createLog("info", { destination: { write } }) });
  key = (await createWorkspace(app.httpUrl)).key;
  sql = openSql(own.url, { max: 1, onnotice: () => {}, backoff: () => 0.1 });
});
afterAll(async () => {
  await app?.close();
  await sql?.end({ timeout: 1 });
  await own?.close();
});

const isServed = async () => (await post(app.httpUrl, "/v2/keys.listKeys", key, { limit: 1 })).status === 200;

/** Nothing is in flight, and no connection has leaked. */
async function expectIdle(): Promise<void> {
  await expect.poll(() => readMetric(app, "pool_connections", { state: "busy" })).toBe(0);
  expect(await readMetric(app, "pool_waiting_statements")).toBe(0);
  const sessions = () =>
    sql`select from pg_stat_activity where application_name = 'latchkey'`.then(({ count }) => count);
  // PostgreSQL needs a moment to end the sessions of abandoned connections.
  await expect.poll(sessions, { timeout: 5_000 }).toBeLessThanOrEqual(maxConnections);
}

describe("PostgreSQL restarted repeatedly under load", () => {
  it("calls fail as unavailable, acknowledged changes survive, and the service reconnects by itself", async () => {
    const load = startLoad();
    for (const mode of ["fast", "immediate", "fast", "immediate"] as const) {
      const before = load.acknowledged.length;
      await expect.poll(() => load.acknowledged.length, { timeout: 10_000 }).toBeGreaterThan(before + 20);
      await own.restart(mode);
      await expect.poll(isServed, { timeout: 10_000 }).toBe(true);
    }
    await load.stop();

    expect([...load.errorCodes].sort()).toEqual(["service_unavailable"]);
    const events = new Set((await listEvents(app.httpUrl, key)).map(({ resourceId }) => resourceId));
    for (const identityId of load.acknowledged) {
      expect(events.has(identityId), `the event of ${identityId}`).toBe(true);
      await succeed(app.httpUrl, "identities.getIdentity", key, { identityId });
    }
    await expectIdle();
    // Each component that detects the outage logs one line when it begins and one when it ends. No call logs one.
    const outageLines = logged.filter((line) => line !== "call");
    expect(outageLines.length, outageLines.join("\n")).toBeLessThanOrEqual(4 * 6);
  });
});

describe("PostgreSQL paused by SIGSTOP", () => {
  it("calls fail as unavailable within seconds, and are served again when it resumes", async () => {
    const everyCall = (): Promise<CallOutcome[]> =>
      Promise.all([callHttp, callGrpc].flatMap((call) => [call(app, "listKeys", key), call(app, "createKey", key)]));
    own.freeze();
    try {
      await expect.poll(() => readMetric(app, "lease_seconds_left"), { timeout: 5_000 }).toBe(0);
      for (let round = 0; round < 3; round++) {
        for (const { outcome } of await everyCall()) expect(outcome).toBe("UNAVAILABLE");
      }
    } finally {
      own.thaw();
    }
    const outcomes = async () => (await everyCall()).map(({ outcome }) => outcome);
    await expect.poll(outcomes, { timeout: 10_000 }).toEqual(["OK", "OK", "OK", "OK"]);
    await expectIdle();
  });
});

/** Creates and reads identities over both protocols without a pause, and records the acknowledged ones. */
function startLoad() {
  const acknowledged: string[] = [];
  const errorCodes = new Set<string>();
  let stopped = false;
  const grpc = createGrpcTransport({ baseUrl: `http://${app.grpcAddress}` });
  const clients = [
    createProtobufClient({ url: app.httpUrl, key }),
    createProtobufClient({ url: app.httpUrl, key }),
    createProtobufClient({ transport: grpc, key }),
    createProtobufClient({ transport: grpc, key }),
  ];
  const working = clients.map(async (client, worker) => {
    for (let number = 0; !stopped; number++) {
      try {
        const { identityId } = await client.identities.createIdentity({ externalId: `w${worker}_${number}` });
        acknowledged.push(identityId);
        await client.identities.getIdentity({ reference: { case: "identityId", value: identityId } });
      } catch (error) {
        errorCodes.add(isLatchkeyError(error) ? error.code : String(error));
      }
    }
  });
  return {
    acknowledged,
    errorCodes,
    async stop() {
      stopped = true;
      await Promise.all(working);
    },
  };
}
