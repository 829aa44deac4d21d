import type postgres from "postgres";
import { afterAll, beforeAll, describe, expect, inject, it } from "vitest";
import { openSql } from "../../../commands/open-sql.js";
import { openProtocols } from "../../support/clients/all.js";
import type { ProtocolClient } from "../../support/clients/protocol-client.js";
import { storedCredits } from "../../support/credit-rows.js";
import { openTestApp, operatorKey, redisAt, type TestApp } from "../../support/harness.js";
import { type BackendProxy, openProxy } from "../../support/proxy.js";
import { openReplicas, type Replicas } from "../../support/replicas.js";
import type { ResponseData } from "../../support/responses.js";

/** Calls a protocol that must succeed. */
async function ok<Name extends keyof ResponseData>(
  protocol: ProtocolClient,
  name: Name,
  credential: string,
  request: Record<string, unknown>,
): Promise<ResponseData[Name]> {
  const outcome = await protocol.call(name as never, credential, request);
  return outcome.ok
    ? (outcome.data as ResponseData[Name])
    : expect.fail(`${String(name)}: ${outcome.code}: ${outcome.detail}`);
}

/** Verifies a key this many times at once, over these protocols in turn, and counts the codes. */
async function verifyAtOnce(protocols: readonly ProtocolClient[], caller: string, key: string, times: number) {
  const responses = await Promise.all(
    Array.from({ length: times }, (_, index) =>
      ok(protocols[index % protocols.length] as ProtocolClient, "verifyKey", caller, { key }),
    ),
  );
  const count = (code: string) => responses.filter((response) => response.code === code).length;
  return { responses, valid: count("VALID"), exceeded: count("USAGE_EXCEEDED") };
}

describe("of many concurrent verifications of a key, exactly as many are VALID as it has credits:", () => {
  const [credits, verifications] = [73, 200];

  describe.each([{ count: 1 }, { count: 2 }])("on $count replicas", ({ count }) => {
    let replicas: Replicas;
    let caller: string;

    beforeAll(async () => {
      replicas = await openReplicas(count);
      caller = (await replicas.change("createWorkspace", operatorKey, { name: "test" })).key;
    });
    afterAll(() => replicas.close());

    it("with one key", async () => {
      const { key, keyId } = await replicas.change("createKey", caller, { credits: { remaining: credits } });
      const { responses, valid, exceeded } = await verifyAtOnce(replicas.protocols, caller, key, verifications);
      expect({ valid, exceeded }).toEqual({ valid: credits, exceeded: verifications - credits });
      const left = responses.filter(({ code }) => code === "VALID").map((response) => Number(response.credits));
      expect(left.sort((one, other) => one - other)).toEqual(Array.from({ length: credits }, (_, index) => index));
      for (const response of responses.filter(({ code }) => code !== "VALID")) {
        expect(response).toMatchObject({ valid: false, keyId });
        expect(Number(response.credits)).toBe(0);
      }
      expect((await replicas.change("getKey", caller, { keyId })).credits).toEqual({ remaining: 0 });
    });

    it("with many keys at once, of several workspaces", async () => {
      const keys = await Promise.all(
        Array.from({ length: 12 }, async (_, index) => {
          const owner =
            index % 3 === 0 ? (await replicas.change("createWorkspace", operatorKey, { name: "other" })).key : caller;
          return {
            owner,
            remaining: index,
            ...(await replicas.change("createKey", owner, { credits: { remaining: index } })),
          };
        }),
      );
      const counts = await Promise.all(keys.map(({ owner, key }) => verifyAtOnce(replicas.protocols, owner, key, 20)));
      expect(counts.map(({ valid }) => valid)).toEqual(keys.map(({ remaining }) => remaining));
    });

    it("while its credits are changed: nothing is lost", async () => {
      const { key, keyId } = await replicas.change("createKey", caller, { credits: { remaining: 50 } });
      const change = (operation: string, value: number) =>
        replicas.change("updateCredits", caller, { keyId, operation, value });
      const verifying = verifyAtOnce(replicas.protocols, caller, key, 300);
      const changes = await Promise.all([change("increment", 40), change("increment", 20), change("increment", 15)]);
      const { valid } = await verifying;
      expect(changes).toHaveLength(3);
      const left = (await replicas.change("getKey", caller, { keyId })).credits?.remaining;
      expect(valid + Number(left)).toBe(50 + 40 + 20 + 15);
    });
  });

  it("while Redis goes away, and with Redis away", async () => {
    const proxy: BackendProxy = await openProxy(inject("redisUrl"));
    const app = await openTestApp({ redis: redisAt(proxy.url) });
    const protocols = openProtocols(app);
    try {
      const { key: caller } = await ok(protocols.http, "createWorkspace", operatorKey, { name: "test" });
      const created = () => ok(protocols.http, "createKey", caller, { credits: { remaining: credits } });
      const first = await created();
      const verifying = verifyAtOnce([protocols.http, protocols.grpc], caller, first.key, verifications);
      proxy.cut();
      expect(await verifying).toMatchObject({ valid: credits, exceeded: verifications - credits });
      const second = await created();
      const counts = await verifyAtOnce([protocols.http, protocols.grpc], caller, second.key, verifications);
      expect(counts).toMatchObject({ valid: credits, exceeded: verifications - credits });
    } finally {
      protocols.close();
      proxy.resume();
      await app.close();
      await proxy.close();
    }
  });
});

describe("a verification", () => {
  let app: TestApp;
  let protocols: ReturnType<typeof openProtocols>;
  let sql: postgres.Sql;
  let caller: string;

  beforeAll(async () => {
    app = await openTestApp();
    protocols = openProtocols(app);
    sql = openSql(app.databaseUrl, { max: 1, onnotice: () => {} });
    caller = (await ok(protocols.http, "createWorkspace", operatorKey, { name: "test" })).key;
  });
  afterAll(async () => {
    protocols.close();
    await sql.end();
    await app.close();
  });

  const createKey = (credits: object, more: object = {}) =>
    ok(protocols.http, "createKey", caller, { credits, ...more });
  const verify = (key: string, more: object = {}) => ok(protocols.http, "verifyKey", caller, { key, ...more });

  it("with different costs spends each as a whole or not at all, and never goes below zero", async () => {
    const { key, keyId } = await createKey({ remaining: 100 });
    const costs = Array.from({ length: 60 }, (_, index) => (index % 7) + 1);
    const responses = await Promise.all(costs.map((cost) => verify(key, { credits: { cost } })));
    const spent = responses.reduce((sum, { valid }, index) => (valid ? sum + (costs[index] ?? 0) : sum), 0);
    expect(await storedCredits(sql, keyId)).toEqual({ [keyId]: 100 - spent });
    expect(spent).toBeLessThanOrEqual(100);
    expect(responses.every(({ credits }) => Number(credits) >= 0)).toBe(true);
    // What was refused did not fit at the end either.
    const cheapest = Math.min(...costs.filter((_, index) => !responses[index]?.valid));
    expect(cheapest).toBeGreaterThan(100 - spent);
  });

  it("that is refused for another reason spends nothing", async () => {
    const lacking = await createKey({ remaining: 5 }, { permissions: ["documents.read"] });
    const disabled = await createKey({ remaining: 5 }, { enabled: false });
    expect(await verify(lacking.key, { permissions: "documents.write" })).toMatchObject({
      code: "INSUFFICIENT_PERMISSIONS",
    });
    expect(await verify(disabled.key)).toMatchObject({ code: "DISABLED" });
    const stored = await storedCredits(sql, lacking.keyId, disabled.keyId);
    expect(stored).toEqual({ [lacking.keyId]: 5, [disabled.keyId]: 5 });
  });

  it("with a cost beyond what is left spends nothing, and a smaller one succeeds", async () => {
    const { key } = await createKey({ remaining: 5 });
    expect(await verify(key, { credits: { cost: 6 } })).toMatchObject({
      valid: false,
      code: "USAGE_EXCEEDED",
      credits: 5,
    });
    expect(await verify(key, { credits: { cost: 5 } })).toMatchObject({ valid: true, code: "VALID", credits: 0 });
    expect(await verify(key, { credits: { cost: 0 } })).toMatchObject({ valid: true, credits: 0 });
    expect(await verify(key)).toMatchObject({ code: "USAGE_EXCEEDED", credits: 0 });
  });

  it("of a key without credits spends none, whatever it costs", async () => {
    const { key } = await ok(protocols.http, "createKey", caller, {});
    const response = await verify(key, { credits: { cost: 1_000 } });
    expect(response).toMatchObject({ code: "VALID" });
    expect(response).not.toHaveProperty("credits");
  });

  it("after a refill is due finds the refilled credits, on every day", async () => {
    const { key, keyId } = await createKey({ remaining: 1, refill: { interval: "daily", amount: 3 } });
    const codes = async () => {
      const found: string[] = [];
      for (let round = 0; round < 4; round++) found.push((await verify(key)).code);
      return found;
    };
    expect(await codes()).toEqual(["VALID", "USAGE_EXCEEDED", "USAGE_EXCEEDED", "USAGE_EXCEEDED"]);
    for (const days of [1, 3]) {
      await app.advance(days * 86_400_000);
      const shown = await ok(protocols.grpc, "getKey", caller, { keyId });
      expect(Number(shown.credits?.remaining)).toBe(3);
      expect(await storedCredits(sql, keyId)).toEqual({ [keyId]: 0 });
      expect(await codes()).toEqual(["VALID", "VALID", "VALID", "USAGE_EXCEEDED"]);
    }
  });

  it("no verification writes an audit event or makes replicas read the key again", async () => {
    const { key, keyId } = await createKey({ remaining: 10 });
    const state = async () => {
      const [row] = await sql<{ events: number; xid: string }[]>`
        select (select count(*)::int from audit_events where resource_id = ${keyId}) as events, changed_xid::text as xid
        from keys where key_id = ${keyId}`;
      return row;
    };
    const before = await state();
    for (let round = 0; round < 3; round++) expect(await verify(key)).toMatchObject({ code: "VALID" });
    expect(await state()).toEqual(before);
  });
});
