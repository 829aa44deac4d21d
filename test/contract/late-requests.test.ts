import { setTimeout as sleep } from "node:timers/promises";
import type postgres from "postgres";
import { afterAll, beforeAll, describe, expect, inject, test } from "vitest";
import { openSql } from "../../commands/open-sql.js";
import { succeed } from "../support/calls.js";
import type { CallRequest } from "../support/clients/protocol-client.js";
import { openWire, type Wire, type WireClient, type WireOptions } from "../support/clients/wire.js";
import { createDatabase, openTestApp, type TestApp } from "../support/harness.js";
import { type Rpc, requestOf, rpcs } from "../support/rpcs.js";
import { createVictim, revocations, type Victim } from "./revocations.js";

let app: TestApp;
let wire: Wire;
let sql: postgres.Sql;
let database: Awaited<ReturnType<typeof createDatabase>>;

beforeAll(async () => {
  database = await createDatabase(inject("template"));
  sql = openSql(database.url, { max: 1, onnotice: () => {} });
  // A longer lease and no load shedding: otherwise a busy machine would refuse calls for those reasons.
  await sql`update cluster_state set lease_ms = 400, wait_ms = 400`;
  app = await openTestApp({ databaseUrl: database.url, guard: { accepts: () => true } });
  wire = openWire(app);
});
afterAll(async () => {
  wire.close();
  await app.close();
  await sql.end();
  await database.drop();
});

const rpcNamed = (name: string) => rpcs.find((rpc) => rpc.name === name) as Rpc;
const createKey = rpcNamed("KeysService.CreateKey");

/** Clients of an RPC, only those whose requests have a body. */
const clientsWithBody = (rpc: Rpc) => wire.clientsFor(rpc).filter((client) => typeof client.garbage !== "string");

/** Sends the headers of a request to each of these RPCs over every protocol, and the bodies when `finish` is called. */
async function begin(key: string, requests: readonly (readonly [Rpc, CallRequest])[], how: WireOptions = {}) {
  let sendBodies = () => {};
  const bodyAfter = new Promise<void>((resolve) => {
    sendBodies = resolve;
  });
  const calls = requests.flatMap(([rpc, request]) =>
    clientsWithBody(rpc).map((client) => {
      const ended = client
        .send(`Bearer ${key}`, client.write(request), { ...how, bodyAfter })
        .then((response) => client.read(response));
      return { client: `${rpc.name} over ${client.name}`, ended };
    }),
  );
  await arrival(key);
  return {
    finish: async () => {
      sendBodies();
      return Promise.all(calls.map(async ({ client, ended }) => ({ client, code: (await ended).code })));
    },
  };
}

/** Earlier requests have probably arrived when this one is answered. If one has not, the test is weaker, not wrong. */
async function arrival(key: string): Promise<void> {
  for (let time = 0; time < 3; time++) await succeed(app.httpUrl, "keys.verifyKey", key, { key });
  await sleep(20);
}

/** Every key and identity of the workspace, and every event of this actor. */
async function contents({ workspaceId, keyId }: Victim) {
  return {
    keys: [...(await sql`select key_id, name, updated_at from keys where workspace_id = ${workspaceId} order by 1`)],
    identities: [
      ...(await sql`select identity_id, meta from identities where workspace_id = ${workspaceId} order by 1`),
    ],
    events: [...(await sql`select event_id, type from audit_events where actor = ${keyId} order by 1`)],
  };
}

/**
 * Expects no wrong outcome. A process that gets no CPU time for longer than a lease refuses its calls as unavailable.
 * That is neither right nor wrong, so the attempt is repeated.
 */
async function unlessUnavailable(findWrong: () => Promise<{ code: string }[]>): Promise<void> {
  let wrong = await findWrong();
  for (let left = 5; left > 0 && wrong.some(({ code }) => code.endsWith("/service_unavailable")); left--)
    wrong = await findWrong();
  expect(wrong).toEqual([]);
}

describe.each(revocations)("after $name is acknowledged", ({ revoke, code }) => {
  test("a change whose body arrives only then gets the right error on every protocol, and changes nothing", async () => {
    await unlessUnavailable(async () => {
      const victim = await createVictim(app);
      const pending = await begin(victim.key, [[createKey, { name: "successor", scopes: ["*"] }]]);
      await revoke(app, victim);
      const before = await contents(victim);
      const outcomes = await pending.finish();
      expect(await contents(victim)).toEqual(before);
      expect(outcomes.length).toBe(4);
      return outcomes.filter((outcome) => outcome.code !== code);
    });
  });
});

test("after deleteKey is acknowledged, every operation whose body arrives only then is refused", async () => {
  const victim = await createVictim(app);
  const { firstKey } = victim;
  const other = await succeed<{ keyId: string; key: string }>(app.httpUrl, "keys.createKey", firstKey, {
    externalId: "user",
  });
  const { identity } = await succeed<{ identity: { identityId: string } }>(app.httpUrl, "keys.getKey", firstKey, {
    keyId: other.keyId,
  });
  const things = {
    workspaceId: victim.workspaceId,
    keyId: other.keyId,
    key: other.key,
    identityId: identity.identityId,
    externalId: "somebody new",
    name: "a new name",
  };
  const open = rpcs.filter(({ access }) => access.scope !== "");
  const pending = await begin(
    victim.key,
    open.map((rpc) => [rpc, requestOf(rpc, things)] as const),
  );
  await succeed(app.httpUrl, "keys.deleteKey", firstKey, { keyId: victim.keyId });
  const before = await contents(victim);
  const outcomes = await pending.finish();
  expect(outcomes.length).toBeGreaterThanOrEqual(4 * open.length - 1);
  expect(outcomes.filter(({ code }) => code !== "authentication/key_not_found")).toEqual([]);
  expect(await contents(victim)).toEqual(before);
});

test("a key that expires before the request's body has arrived is refused", async () => {
  const victim = await createVictim(app);
  const expires = Date.now() + 3_600_000;
  await succeed(app.httpUrl, "keys.updateKey", victim.firstKey, { keyId: victim.keyId, expires });
  const pending = await begin(victim.key, [[createKey, { name: "successor" }]]);
  await app.advance(3_600_000);
  const outcomes = await pending.finish();
  expect(outcomes.filter(({ code }) => code !== "authentication/key_expired")).toEqual([]);
  expect((await contents(victim)).events).toEqual([]);
});

test("a caller that was changed meanwhile and is still authorized is served with its new state", async () => {
  const victim = await createVictim(app);
  const pending = await begin(victim.key, [
    [createKey, { scopes: ["identities.read"] }],
    [rpcNamed("KeysService.ListKeys"), {}],
  ]);
  const scopes = ["keys.*", "identities.*"];
  await succeed(app.httpUrl, "keys.updateKey", victim.firstKey, { keyId: victim.keyId, scopes });
  expect((await pending.finish()).filter(({ code }) => code !== "ok")).toEqual([]);
});

describe("deadlines: a call whose deadline has passed is not executed", () => {
  const noTime = { "connect-timeout-ms": "0", "grpc-timeout": "0m" };

  test("20 creates with an expired deadline create no key", async () => {
    const victim = await createVictim(app);
    for (const client of wire.clientsFor(createKey).filter(allowsTimeouts)) {
      const calls = Array.from({ length: 20 }, async () => {
        const response = await client.send(`Bearer ${victim.key}`, client.write({ name: "late" }), { headers: noTime });
        return (await client.read(response)).code;
      });
      expect(new Set(await Promise.all(calls)), client.name).toEqual(new Set(["application/deadline_exceeded"]));
    }
    expect((await contents(victim)).events).toEqual([]);
  });

  test("the deadline includes the time in which the body arrives", async () => {
    const victim = await createVictim(app);
    const timeouts = { "connect-timeout-ms": "200", "grpc-timeout": "200m" };
    const clients = wire.clientsFor(createKey).filter(allowsTimeouts);
    const codes = clients.map(async (client) => {
      const response = await client.send(`Bearer ${victim.key}`, client.write({ name: "late" }), {
        headers: timeouts,
        // Much later: on a busy machine the service gets the headers late, and the deadline counts from there.
        bodyAfter: sleep(3_000),
      });
      return (await client.read(response)).code;
    });
    expect(await Promise.all(codes)).toEqual(clients.map(() => "application/deadline_exceeded"));
    expect((await contents(victim)).events).toEqual([]);
  });

  test("default deadline: a call without a timeout has 10 seconds from its first byte", async () => {
    const victim = await createVictim(app);
    const clients = wire.clientsFor(createKey);
    const codes = clients.map(async (client) => {
      const response = await client.send(`Bearer ${victim.key}`, client.write({ name: "late" }), {
        bodyAfter: sleep(13_000),
      });
      return (await client.read(response)).code;
    });
    expect(await Promise.all(codes)).toEqual(clients.map(() => "application/deadline_exceeded"));
    expect((await contents(victim)).events).toEqual([]);
  });
});

/** Plain HTTP has no timeout header. */
function allowsTimeouts({ name }: WireClient): boolean {
  return !name.startsWith("POST");
}
