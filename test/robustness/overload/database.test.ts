import { connect } from "node:http2";
import { setTimeout as sleep } from "node:timers/promises";
import { create, toBinary } from "@bufbuild/protobuf";
import { status } from "@grpc/grpc-js";
import type postgres from "postgres";
import { afterAll, beforeAll, describe, expect, inject, it, onTestFinished } from "vitest";
import { openSql } from "../../../commands/open-sql.js";
import { CreateIdentityRequestSchema } from "../../../gen/latchkey/v1/identities_service_pb.js";
import { fairRules } from "../../../src/storage/postgres/shares.js";
import { callHeaders, grpcFrame, grpcStatusOf } from "../../support/clients/grpc-streams.js";
import {
  createWorkspace,
  expectError,
  expectSuccess,
  type HttpResponse,
  post,
} from "../../support/clients/http-requests.js";
import { createDatabase, openTestApp, operatorKey, type TestApp } from "../../support/harness.js";
import { readSamples, total } from "../../support/metric-samples.js";
import { startStopwatch } from "../../support/stopwatch.js";

const { share } = fairRules.operator;

/** How long the acquire queue tolerates a burst. */
const burstMs = 5_000;

let app: TestApp;
let key: string;
let database: Awaited<ReturnType<typeof createDatabase>>;
let sql: postgres.Sql;
beforeAll(async () => {
  database = await createDatabase(inject("template"));
  sql = openSql(database.url, { max: 1, onnotice: () => {} });
  // Long enough that no call is refused because of an expired lease or an overloaded process on a busy machine.
  await sql`update cluster_state set lease_ms = 5000, wait_ms = 5000`;
  app = await openTestApp({ databaseUrl: database.url, metricsPort: 0, guard: { accepts: () => true } });
  key = (await createWorkspace(app.httpUrl)).key;
  // From now on the key is cached: a call needs only the statement of its change.
  expectSuccess(await post(app.httpUrl, "/v2/keys.verifyKey", key, { key }));
});
afterAll(async () => {
  await app.close();
  await sql.end({ timeout: 1 });
  await database.drop();
});

describe("each of a thousand concurrent changes is either acknowledged and stored, or shed and not stored:", () => {
  it("none is shed before the acquire queue has been standing for a second", async () => {
    const ends = await changeAtOnce("burst");
    // On a machine without other load, all are done by then.
    expect(ends.filter(({ code, ms }) => code !== status.OK && ms < 1_000)).toEqual([]);
  });

  it("some are shed when the database is too slow, and some succeed", async () => {
    await sql`create function delay_insert() returns trigger language plpgsql as
      $$ begin perform pg_sleep(0.05); return new; end $$`;
    await sql`create trigger delay_insert before insert on identities for each row execute function delay_insert()`;
    onTestFinished(() => sql`drop function delay_insert cascade`.then(() => {}));
    const ends = await changeAtOnce("slow");
    const succeeded = ends.filter(({ code }) => code === status.OK).length;
    // At least those of three connections in the second for which a burst is tolerated, and far fewer than a thousand.
    expect(succeeded).toBeGreaterThanOrEqual(10);
    expect(succeeded).toBeLessThan(900);
  });

  /** Creates identities concurrently, and compares the responses with the stored rows. */
  async function changeAtOnce(prefix: string): Promise<{ code: number; ms: number }[]> {
    const session = connect(`http://${app.grpcAddress}`);
    onTestFinished(() => session.destroy());
    const headers = callHeaders("/latchkey.v1.IdentitiesService/CreateIdentity", key);
    const externalIds = Array.from({ length: 1_000 }, (_, index) => `${prefix}_${index}`);
    const before = await countShed(app);
    const startedAt = performance.now();
    const ends = await Promise.all(
      externalIds.map(async (externalId) => {
        const message = toBinary(CreateIdentityRequestSchema, create(CreateIdentityRequestSchema, { externalId }));
        const code = await grpcStatusOf(session.request(headers).end(grpcFrame(Buffer.from(message))));
        return { externalId, code, ms: performance.now() - startedAt };
      }),
    );
    const acknowledged = ends.filter(({ code }) => code === status.OK);
    const refused = ends.filter(({ code }) => code === status.UNAVAILABLE);
    expect(acknowledged.length + refused.length).toBe(1_000);
    // One call in a hundred is followed by a spot check of its key, which can be shed, too.
    const checks = (await countShed(app)) - before - refused.length;
    expect(checks).toBeGreaterThanOrEqual(0);
    expect(checks).toBeLessThanOrEqual(10);
    const stored = await sql<{ externalId: string; events: number }[]>`
      select external_id as "externalId", (select count(*)::int from audit_events where resource_id = identity_id) as events
      from identities where starts_with(external_id, ${prefix})`;
    const inOrder = (changes: readonly { externalId: string }[]) => changes.map(({ externalId }) => externalId).sort();
    expect(inOrder(stored)).toEqual(inOrder(acknowledged));
    expect(stored.filter(({ events }) => events !== 1)).toEqual([]);
    return ends;
  }
});

async function countShed(app: TestApp): Promise<number> {
  return total(await readSamples(app), "latchkey_shed_total", { bottleneck: "database" });
}

it("while all pool connections of a caller hang, calls are shed early, and cached keys are served", async () => {
  // A new service without an earlier queue: the other one would shed sooner.
  const app = await openTestApp({ metricsPort: 0 });
  onTestFinished(() => app.close());
  const { key } = await createWorkspace(app.httpUrl);
  const verify = () => post(app.httpUrl, "/v2/keys.verifyKey", key, { key });
  expectSuccess(await verify());
  const before = await countShed(app);
  const release = await lockAuditEvents(app.databaseUrl);
  const list = () => post(app.httpUrl, "/v2/workspaces.listAuditEvents", operatorKey, {});

  // As many as the operator's share. Later calls wait for a connection.
  let finished = 0;
  const first = Array.from({ length: share }, () => list().finally(() => finished++));
  await expect.poll(() => countBusy(app), { timeout: 5_000 }).toBe(share);
  await sleep(50); // no statement is pipelined behind one that takes longer than 20 ms
  const elapsed = startStopwatch();
  for (const response of await Promise.all(Array.from({ length: 30 }, list))) expectShed(response);
  expect(elapsed(), "a queue that does not move is not a burst").toBeLessThan(burstMs);
  expect(finished, "the blocked calls still hang").toBe(0);

  // The queue is now known to be standing.
  expectShed(await list());
  expect((await countShed(app)) - before).toBe(31);
  expectSuccess(await verify());

  await release();
  for (const response of await Promise.all(first)) expectSuccess(response);
  expectSuccess(await list());
});

async function countBusy(app: TestApp): Promise<number> {
  return total(await readSamples(app), "latchkey_pool_connections", { state: "busy" });
}

/** Locks the audit events, so that every statement that reads them hangs until the lock is released. */
async function lockAuditEvents(url: string): Promise<() => Promise<void>> {
  const sql = openSql(url, { max: 1, onnotice: () => {} });
  onTestFinished(() => sql.end({ timeout: 1 }));
  const session = await sql.reserve();
  await session`begin`;
  await session`lock table audit_events in access exclusive mode`;
  return async () => {
    await session`commit`;
    session.release();
  };
}

function expectShed(response: HttpResponse): void {
  expectError(response, 503, "application/service_unavailable");
  expect(response.headers["retry-after"]).toMatch(/^\d+$/);
}
