import { afterAll, beforeAll, expect, it } from "vitest";
import { type BehindProxy, openBehindProxy } from "../../support/behind-proxy.js";
import { expectFailure, expectSuccess, post } from "../../support/clients/http-requests.js";

let away: BehindProxy;
beforeAll(async () => {
  // So long a lease that nobody is refused for want of one.
  away = await openBehindProxy(5_000);
});
afterAll(() => away.close());

it("a change that was sent when its connection broke is not sent again: who asked is told, and it is made once", async () => {
  const { app, proxy, sql, key } = away;
  const create = (name: string) => post(app.httpUrl, "/v2/keys.createKey", key, { name });
  expectSuccess(await create("before")); // from now on the key is held, and the statement known to the connection
  const waiting = async () => (await sql`select from pg_locks where not granted`).count;
  const made = async () => (await sql`select from keys where name = 'once'`).count;

  const holder = await sql.reserve();
  try {
    await holder`begin`;
    await holder`lock table audit_events in access exclusive mode`;
    const asked = create("once");
    await expect.poll(waiting, { timeout: 5_000 }).toBe(1);
    proxy.cut();
    proxy.resume();
    expectFailure(await asked, 503, "application/service_unavailable");
    expect(await made()).toBe(0);
  } finally {
    await holder`rollback`;
    holder.release();
  }
  // PostgreSQL does not notice while it works that nobody listens any more.
  await expect.poll(made, { timeout: 5_000 }).toBe(1);
  expectSuccess(await create("after"));
  expect(await made()).toBe(1);
});
