import { setTimeout as sleep } from "node:timers/promises";
import { afterEach, describe, expect, it } from "vitest";
import { type BehindProxy, openBehindProxy } from "../../support/behind-proxy.js";
import { succeed } from "../../support/calls.js";
import { openGrpcClient } from "../../support/clients/grpc.js";
import { callGrpc, callHttp } from "../../support/clients/timed-calls.js";
import { openTestApp } from "../../support/harness.js";
import { readLookups } from "../../support/metrics.js";

let setting: BehindProxy;
afterEach(() => setting.close());

const verify = async (call: typeof callGrpc) =>
  (await call(setting.app, "verifyKey", setting.key, { key: setting.key })).outcome;

describe("while the lease lasts", () => {
  it("a cached key is verified without a round trip: 200 calls in a row while no backend answers", async () => {
    setting = await openBehindProxy(5_000, { redis: undefined });
    const { app, key, proxy } = setting;
    const protocol = openGrpcClient(app.grpcAddress);
    await protocol.call("verifyKey", key, { key });
    const [keys, workspaces] = [await readLookups(app, "key"), await readLookups(app, "workspace")];
    proxy.stall();
    for (let calls = 0; calls < 200; calls++) {
      expect(await protocol.call("verifyKey", key, { key })).toMatchObject({ ok: true, data: { valid: true } });
    }
    proxy.resume();
    protocol.close();
    // Each call looks up the caller and the verified key.
    expect(await readLookups(app, "key")).toEqual({ ...keys, memory: keys.memory + 400 });
    expect(await readLookups(app, "workspace")).toEqual({ ...workspaces, memory: workspaces.memory + 400 });
  });

  it("200 concurrent calls with a key that is not cached cost one read of PostgreSQL", async () => {
    setting = await openBehindProxy();
    const { app, key } = setting;
    await verify(callHttp);
    const cold = await succeed<{ key: string }>(app.httpUrl, "keys.createKey", key, { scopes: ["*"] });
    const before = await readLookups(app, "key");
    const protocol = openGrpcClient(app.grpcAddress);
    const calls = Array.from({ length: 200 }, () => protocol.call("verifyKey", cold.key, { key: cold.key }));
    for (const outcome of await Promise.all(calls)) expect(outcome).toMatchObject({ ok: true, data: { valid: true } });
    protocol.close();
    expect((await readLookups(app, "key")).postgres).toBe(before.postgres + 1);
  });
});

describe("when the lease has ended", () => {
  it("no call that begins afterwards is accepted, until PostgreSQL has answered", async () => {
    const leaseMs = 500;
    setting = await openBehindProxy(leaseMs);
    await Promise.all([verify(callHttp), verify(callGrpc)]);
    setting.proxy.stall();
    const stalledAt = performance.now();
    const calls: Promise<{ startedAt: number; outcome: string }>[] = [];
    while (performance.now() < stalledAt + 2 * leaseMs) {
      for (const call of [callHttp, callGrpc]) {
        const startedAt = performance.now() - stalledAt;
        calls.push(verify(call).then((outcome) => ({ startedAt, outcome })));
      }
      await sleep(20);
    }
    const answers = await Promise.all(calls);
    const [accepted, refused] = ["OK", "UNAVAILABLE"].map((outcome) =>
      answers.filter((each) => each.outcome === outcome),
    );
    expect(answers).toHaveLength((accepted?.length ?? 0) + (refused?.length ?? 0));
    expect(accepted?.filter(({ startedAt }) => startedAt >= leaseMs)).toEqual([]);
    expect([accepted?.length, refused?.length]).toEqual([expect.toSatisfy(isSeveral), expect.toSatisfy(isSeveral)]);
  });
});

describe("a change of more rows than a poll lists one by one", () => {
  it("outdates the cached values of them within a lease, on every replica, and the service keeps serving", async () => {
    setting = await openBehindProxy();
    const { app, sql, databaseUrl, workspaceId, key } = setting;
    const other = await openTestApp({ databaseUrl });
    try {
      const made = await succeed<{ key: string }>(app.httpUrl, "keys.createKey", key, {
        scopes: ["*"],
        name: "bulk",
      });
      await sql`
        insert into keys (key_id, workspace_id, hash, start, name, enabled, permissions, created_at, updated_at)
        select 'key_bulk_' || n, ${workspaceId}, sha256(n::text::bytea), 'lk_', 'bulk', true, '{}', now(), now()
        from generate_series(1, 10500) n`;
      for (const replica of [app, other, app, other]) {
        expect((await callHttp(replica, "listKeys", made.key)).outcome).toBe("OK");
      }
      await sql`update keys set enabled = false where name = 'bulk'`;
      await sleep(60);
      for (const replica of [app, other]) {
        expect((await callHttp(replica, "listKeys", made.key)).outcome).toContain("authorization/key_disabled");
        await expect.poll(async () => (await callHttp(replica, "listKeys", key)).outcome).toBe("OK");
      }
    } finally {
      await other.close();
    }
  });
});

const isSeveral = (count: number) => count >= 3;
