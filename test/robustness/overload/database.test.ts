import { connect } from "node:http2";
import { setTimeout as sleep } from "node:timers/promises";
import { create, toBinary } from "@bufbuild/protobuf";
import { status } from "@grpc/grpc-js";
import type postgres from "postgres";
import { afterAll, beforeAll, describe, expect, inject, it, onTestFinished } from "vitest";
import { openSql } from "../../../commands/open-sql.js";
import { CreateIdentityRequestSchema } from "../../../gen/latchkey/v1/identities_service_pb.js";
import { fairRules } from "../../../src/storage/postgres/shares.js";
import {
  type Answer,
  createWorkspace,
  expectFailure,
  expectSuccess,
  post,
} from "../../support/clients/http-requests.js";
import { createDatabase, openTestApp, operatorKey, type TestApp } from "../../support/harness.js";
import { readSamples, total } from "../../support/metric-samples.js";
import { startStopwatch } from "../../support/stopwatch.js";
import { callHeaders, grpcStatusOf, prefixed } from "./bare-grpc.js";

const { share } = fairRules.operator;

/** For how long a burst is waited out. */
const burstMs = 5_000;

let app: TestApp;
let key: string;
let database: Awaited<ReturnType<typeof createDatabase>>;
let sql: postgres.Sql;
beforeAll(async () => {
  database = await createDatabase(inject("template"));
  sql = openSql(database.url, { max: 1, onnotice: () => {} });
  // So long that on a busy machine none is refused for want of a lease; nor for want of time of this process.
  await sql`update cluster_state set lease_ms = 5000, wait_ms = 5000`;
  app = await openTestApp({ databaseUrl: database.url, metricsPort: 0, guard: { accepts: () => true } });
  key = (await createWorkspace(app.httpUrl)).key;
  // From now on the key is held: a call needs one statement, that of its change.
  expectSuccess(await post(app.httpUrl, "/v2/keys.verifyKey", key, { key }));
});
afterAll(async () => {
  await app.close();
  await sql.end({ timeout: 1 });
  await database.drop();
});

describe("of a thousand changes at once, each is acknowledged and stored, or refused as UNAVAILABLE, counted and not stored:", () => {
  it("none is refused before a queue has stood for a second", async () => {
    const ends = await changeAtOnce("burst");
    // On a machine that is not overwhelmed all are done by then.
    expect(ends.filter(({ code, ms }) => code !== status.OK && ms < 1_000)).toEqual([]);
  });

  it("some are refused when the database cannot do them in time, and some made", async () => {
    await sql`create function dawdle() returns trigger language plpgsql as
      $$ begin perform pg_sleep(0.05); return new; end $$`;
    await sql`create trigger dawdle before insert on identities for each row execute function dawdle()`;
    onTestFinished(() => sql`drop function dawdle cascade`.then(() => {}));
    const ends = await changeAtOnce("slow");
    const succeeded = ends.filter(({ code }) => code === status.OK).length;
    // Three connections in the second for which a burst is waited out; and nowhere near a thousand.
    expect(succeeded).toBeGreaterThanOrEqual(10);
    expect(succeeded).toBeLessThan(900);
  });

  /** Creates identities all at once, and holds against the answers what is there afterwards. */
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
        const code = await grpcStatusOf(session.request(headers).end(prefixed(Buffer.from(message))));
        return { externalId, code, ms: performance.now() - startedAt };
      }),
    );
    const acknowledged = ends.filter(({ code }) => code === status.OK);
    const refused = ends.filter(({ code }) => code === status.UNAVAILABLE);
    expect(acknowledged.length + refused.length).toBe(1_000);
    // One call in a hundred is followed by a check of its key, which can be turned away, too.
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

it("while every connection that a caller may use hangs, calls that need one are refused before a burst would be, and what is held is served", async () => {
  // One in which no queue has stood yet: the other would be quick to refuse.
  const app = await openTestApp({ metricsPort: 0 });
  onTestFinished(() => app.close());
  const { key } = await createWorkspace(app.httpUrl);
  const verify = () => post(app.httpUrl, "/v2/keys.verifyKey", key, { key });
  expectSuccess(await verify());
  const before = await countShed(app);
  const release = await holdAuditEvents(app.databaseUrl);
  const list = () => post(app.httpUrl, "/v2/workspaces.listAuditEvents", operatorKey, {});

  // As many as the operator's share; who comes later waits for one.
  let answered = 0;
  const first = Array.from({ length: share }, () => list().finally(() => answered++));
  await expect.poll(() => countBusy(app), { timeout: 5_000 }).toBe(share);
  await sleep(50); // nobody is sent behind a statement that takes longer than 20 ms
  const elapsed = startStopwatch();
  for (const answer of await Promise.all(Array.from({ length: 30 }, list))) expectTurnedAway(answer);
  expect(elapsed(), "a queue that does not move is no burst").toBeLessThan(burstMs);
  expect(answered, "those that hang still do").toBe(0);

  // By now it is known that the queue stands.
  expectTurnedAway(await list());
  expect((await countShed(app)) - before).toBe(31);
  expectSuccess(await verify());

  await release();
  for (const answer of await Promise.all(first)) expectSuccess(answer);
  expectSuccess(await list());
});

async function countBusy(app: TestApp): Promise<number> {
  return total(await readSamples(app), "latchkey_pool_connections", { state: "busy" });
}

/** Makes every statement hang that reads the audit events, until they are let go. */
async function holdAuditEvents(url: string): Promise<() => Promise<void>> {
  const sql = openSql(url, { max: 1, onnotice: () => {} });
  onTestFinished(() => sql.end({ timeout: 1 }));
  const own = await sql.reserve();
  await own`begin`;
  await own`lock table audit_events in access exclusive mode`;
  return async () => {
    await own`commit`;
    own.release();
  };
}

function expectTurnedAway(answer: Answer): void {
  expectFailure(answer, 503, "application/service_unavailable");
  expect(answer.headers["retry-after"]).toMatch(/^\d+$/);
}
