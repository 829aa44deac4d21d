import { afterAll, beforeAll, expect, it } from "vitest";
import { type BehindProxy, openBehindProxy } from "../../support/behind-proxy.js";
import { expectError, expectSuccess, post } from "../../support/clients/http-requests.js";

let behindProxy: BehindProxy;
beforeAll(async () => {
  // A lease so long that no call is refused because it has expired.
  behindProxy = await openBehindProxy(5_000);
});
afterAll(() => behindProxy.close());

it("a change in flight when its connection breaks is not retried: the caller gets 503, it is made once", async () => {
  const { app, proxy, sql, key } = behindProxy;
  const create = (name: string) => post(app.httpUrl, "/v2/keys.createKey", key, { name });
  expectSuccess(await create("before")); // now the key is cached, and the statement prepared on the connection
  const waitingCount = async () => (await sql`select from pg_locks where not granted`).count;
  const createdCount = async () => (await sql`select from keys where name = 'once'`).count;

  const holder = await sql.reserve();
  try {
    await holder`begin`;
    await holder`lock table audit_events in access exclusive mode`;
    const response = create("once");
    await expect.poll(waitingCount, { timeout: 5_000 }).toBe(1);
    proxy.cut();
    proxy.resume();
    expectError(await response, 503, "application/service_unavailable");
    expect(await createdCount()).toBe(0);
  } finally {
    await holder`rollback`;
    holder.release();
  }
  // While a statement runs, PostgreSQL does not notice that its client has disconnected.
  await expect.poll(createdCount, { timeout: 5_000 }).toBe(1);
  expectSuccess(await create("after"));
  expect(await createdCount()).toBe(1);
});
