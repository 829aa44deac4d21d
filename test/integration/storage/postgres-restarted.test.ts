import { createGrpcTransport } from "@connectrpc/connect-node";
import { pino } from "pino";
import type postgres from "postgres";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { openSql } from "../../../commands/open-sql.js";
import { createLatchkeyClient, isLatchkeyError } from "../../../src/client/client.js";
import { type Answered, callGrpc, callHttp } from "../../support/answered.js";
import { listEvents, succeed } from "../../support/calls.js";
import { createWorkspace, post } from "../../support/clients/http-requests.js";
import { openTestApp, type TestApp } from "../../support/harness.js";
import { readMetric } from "../../support/metrics.js";
import { type OwnPostgres, openOwnPostgres } from "../../support/own-postgres.js";

/** Connections of a service: those that calls use, and the one that asks for changes. */
const mostConnections = 11;

let own: OwnPostgres;
let app: TestApp;
let key: string;
let sql: postgres.Sql;
const said: string[] = [];

beforeAll(async () => {
  own = await openOwnPostgres();
  const write = (line: string) => void said.push(JSON.parse(line).msg);
  app = await openTestApp({ databaseUrl: own.url, metricsPort: 0, log: pino({ level: "info" }, { write }) });
  key = (await createWorkspace(app.httpUrl)).key;
  sql = openSql(own.url, { max: 1, onnotice: () => {}, backoff: () => 0.1 });
});
afterAll(async () => {
  await app?.close();
  await sql?.end({ timeout: 1 });
  await own?.close();
});

const isServed = async () => (await post(app.httpUrl, "/v2/keys.listKeys", key, { limit: 1 })).status === 200;

/** What a service uses when nothing is under way. */
async function expectNothingLeft(): Promise<void> {
  await expect.poll(() => readMetric(app, "pool_connections", { state: "busy" })).toBe(0);
  expect(await readMetric(app, "pool_waiting_statements")).toBe(0);
  const sessions = () =>
    sql`select from pg_stat_activity where application_name = 'latchkey'`.then(({ count }) => count);
  // Connections that were given up have a moment left.
  await expect.poll(sessions, { timeout: 5_000 }).toBeLessThanOrEqual(mostConnections);
}

describe("PostgreSQL restarted under load, again and again", () => {
  it("is told as unavailable, keeps what was acknowledged, and is used again without a restart of the service", async () => {
    const load = startLoad();
    for (const mode of ["fast", "immediate", "fast", "immediate"] as const) {
      const before = load.acknowledged.length;
      await expect.poll(() => load.acknowledged.length, { timeout: 10_000 }).toBeGreaterThan(before + 20);
      await own.restart(mode);
      await expect.poll(isServed, { timeout: 10_000 }).toBe(true);
    }
    await load.stop();

    expect([...load.refusals].sort()).toEqual(["service_unavailable"]);
    const events = new Set((await listEvents(app.httpUrl, key)).map(({ resourceId }) => resourceId));
    for (const identityId of load.acknowledged) {
      expect(events.has(identityId), `the event of ${identityId}`).toBe(true);
      await succeed(app.httpUrl, "identities.getIdentity", key, { identityId });
    }
    await expectNothingLeft();
    // One line when it begins and one when it ends, for each thing that notices; none for each call.
    const others = said.filter((line) => line !== "call");
    expect(others.length, others.join("\n")).toBeLessThanOrEqual(4 * 6);
  });
});

describe("PostgreSQL stopped by SIGSTOP", () => {
  it("is told as unavailable within seconds, and served again when it goes on", async () => {
    const everyCall = (): Promise<Answered[]> =>
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
    await expectNothingLeft();
  });
});

/** Creates and reads through both protocols without a pause, and keeps what was acknowledged. */
function startLoad() {
  const acknowledged: string[] = [];
  const refusals = new Set<string>();
  let stopped = false;
  const grpc = createGrpcTransport({ baseUrl: `http://${app.grpcAddress}` });
  const clients = [
    createLatchkeyClient({ url: app.httpUrl, key }),
    createLatchkeyClient({ url: app.httpUrl, key }),
    createLatchkeyClient({ transport: grpc, key }),
    createLatchkeyClient({ transport: grpc, key }),
  ];
  const working = clients.map(async (client, worker) => {
    for (let number = 0; !stopped; number++) {
      try {
        const { identityId } = await client.identities.createIdentity({ externalId: `w${worker}_${number}` });
        acknowledged.push(identityId);
        await client.identities.getIdentity({ reference: { case: "identityId", value: identityId } });
      } catch (error) {
        refusals.add(isLatchkeyError(error) ? error.code : String(error));
      }
    }
  });
  return {
    acknowledged,
    refusals,
    async stop() {
      stopped = true;
      await Promise.all(working);
    },
  };
}
