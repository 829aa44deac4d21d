import { connect } from "node:http2";
import { setTimeout as sleep } from "node:timers/promises";
import { create, toBinary } from "@bufbuild/protobuf";
import { status } from "@grpc/grpc-js";
import postgres from "postgres";
import { afterAll, beforeAll, expect, it, onTestFinished } from "vitest";
import { CreateIdentityRequestSchema } from "../../gen/latchkey/v1/identities_service_pb.js";
import { type Answer, createWorkspace, expectFailure, expectSuccess, post } from "../gateway/http.js";
import { openTestApp, operatorKey, type TestApp } from "../harness.js";
import { readSamples, total } from "../observe/samples.js";
import { callHeaders, grpcStatusOf, prefixed } from "./bare-grpc.js";

let app: TestApp;
let key: string;
beforeAll(async () => {
  app = await openTestApp({ metricsPort: 0 });
  key = (await createWorkspace(app.httpUrl)).key;
});
afterAll(() => app.close());

it("a thousand changes at once, to a service that has nothing else to do, all succeed if the database can do them", async () => {
  const session = connect(`http://${app.grpcAddress}`);
  onTestFinished(() => session.destroy());
  const headers = callHeaders("/latchkey.v1.IdentitiesService/CreateIdentity", key);
  const messages = Array.from({ length: 1_000 }, (_, index) =>
    prefixed(Buffer.from(toBinary(CreateIdentityRequestSchema, identityOf(index)))),
  );
  const startedAt = performance.now();
  const ends = await Promise.all(
    messages.map(async (message) => {
      const code = await grpcStatusOf(session.request(headers).end(message));
      return { code, ms: performance.now() - startedAt };
    }),
  );
  // Before a queue has stood for a second nobody is refused. On a machine that is not overwhelmed all are done by then.
  expect(ends.filter(({ code, ms }) => code !== status.OK && ms < 1_000)).toEqual([]);
  expect(ends.filter(({ code }) => code !== status.OK && code !== status.UNAVAILABLE)).toEqual([]);
  const succeeded = ends.filter(({ code }) => code === status.OK).length;
  expect(succeeded + total(await readSamples(app), "latchkey_shed_total")).toBeGreaterThanOrEqual(1_000);
});

it("while every connection hangs, calls that need one are refused soon, and what is held is served", async () => {
  const release = await holdAuditEvents(app.databaseUrl);
  const list = () => post(app.httpUrl, "/v2/workspaces.listAuditEvents", operatorKey, {});

  // As many as there are connections; who comes later waits for one.
  let answered = 0;
  const first = Array.from({ length: 10 }, () => list().finally(() => answered++));
  await expect.poll(busy, { timeout: 5_000 }).toBe(10);
  await sleep(50); // nobody is sent behind a statement that takes longer than 20 ms
  for (const answer of await Promise.all(Array.from({ length: 30 }, list))) expectTurnedAway(answer);
  expect(answered, "those that hang still do").toBe(0);

  // By now it is known that the queue stands.
  expectTurnedAway(await list());
  expect(total(await readSamples(app), "latchkey_shed_total", { bottleneck: "database" })).toBeGreaterThan(30);
  expectSuccess(await post(app.httpUrl, "/v2/keys.verifyKey", key, { key }));

  await release();
  for (const answer of await Promise.all(first)) expectSuccess(answer);
  expectSuccess(await list());
});

async function busy(): Promise<number> {
  return total(await readSamples(app), "latchkey_pool_connections", { state: "busy" });
}

function identityOf(index: number) {
  return create(CreateIdentityRequestSchema, { externalId: `user_${index}` });
}

/** Makes every statement hang that reads the audit events, until they are let go. */
async function holdAuditEvents(url: string): Promise<() => Promise<void>> {
  const sql = postgres(url, { max: 1, onnotice: () => {} });
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
