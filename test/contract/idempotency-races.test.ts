import { Code, ConnectError } from "@connectrpc/connect";
import { createGrpcTransport } from "@connectrpc/connect-node";
import type postgres from "postgres";
import { afterAll, beforeAll, describe, expect, inject, test } from "vitest";
import { openSql } from "../../commands/open-sql.js";
import { KeysService } from "../../gen/latchkey/v1/keys_service_pb.js";
import { openProtocols, type ProtocolClients } from "../support/clients/all.js";
import type { Outcome } from "../support/clients/outcome.js";
import { createDatabase, openTestApp, type TestApp } from "../support/harness.js";
import type { OperationName } from "../support/operations.js";
import { allProtocols, openContract } from "./cases.js";
import { newCall, newKey, type RepeatableCall, withKey } from "./retries.js";
import { openScene, type Scene } from "./scene.js";

const contract = openContract();
const conflict = "data/idempotency_conflict";

let replica: TestApp;
let replicaClients: ProtocolClients;
let sql: postgres.Sql;
beforeAll(async () => {
  replica = await openTestApp({ databaseUrl: contract.app.databaseUrl });
  replicaClients = openProtocols(replica);
  sql = openSql(contract.app.databaseUrl, { max: 3 });
});
afterAll(async () => {
  await sql.end({ timeout: 1 });
  replicaClients.close();
  await replica.close();
});

/** Makes 20 concurrent calls with one Idempotency-Key, over all protocols of two replicas in turn. */
function atOnce(operation: OperationName, callOf: (index: number) => RepeatableCall): Promise<Outcome[]> {
  const protocols = [contract.protocols, replicaClients].flatMap((protocols) =>
    allProtocols.map((name) => protocols[name]),
  );
  const inTurn = Array.from(
    { length: 20 },
    (_, index) => protocols[index % protocols.length] ?? contract.protocols.http,
  );
  return Promise.all(inTurn.map((protocol, index) => protocol.call(operation, ...callOf(index))));
}

type Table =
  | "keys"
  | "identities"
  | "workspaces"
  | "apis"
  | "roles"
  | "permissions"
  | "audit_events"
  | "idempotency_records";

async function countRows(table: Table): Promise<number> {
  const [row] = await sql<{ count: number }[]>`select count(*)::int from ${sql(table)}`;
  return row?.count ?? Number.NaN;
}

describe("concurrent retries: of 20 calls with one Idempotency-Key, on two replicas and over all protocols,", () => {
  const tables = {
    createKey: "keys",
    rerollKey: "keys",
    createIdentity: "identities",
    createWorkspace: "workspaces",
    createApi: "apis",
    createRole: "roles",
    createPermission: "permissions",
    migrateKeys: "keys",
    updateCredits: "audit_events",
  } as const;
  for (const [operation, table] of Object.entries(tables) as [keyof typeof tables, Table][]) {
    test(`one makes the change, and all get its response: ${operation}`, async () => {
      const call = await newCall(operation, await openScene(contract.protocols.http, contract.clock));
      const before = await countRows(table);
      const outcomes = await atOnce(operation, () => call);
      expect(outcomes[0]).toMatchObject({ ok: true });
      expect(outcomes).toEqual(outcomes.map(() => outcomes[0]));
      expect(await countRows(table)).toBe(before + 1);
    });
  }

  test("one makes the change, and those with a different body get idempotency_conflict", async () => {
    const { ok, home } = await openScene(contract.protocols.http, contract.clock);
    // The same externalId: without the Idempotency-Key, the others would get identity_already_exists.
    const bodies = [0, 1].map((index) => ({ externalId: "user_1", meta: { index } }));
    const key = newKey();
    const outcomes = await atOnce("createIdentity", (index) => [home.key, bodies[index % 2] ?? {}, key]);
    const [identity, ...more] = await ok("listIdentities", home.key);
    expect(more).toEqual([]);
    const won = { ok: true, data: { identityId: identity?.identityId } };
    const lost = { ok: false, code: conflict };
    expect(outcomes).toMatchObject(outcomes.map((_, index) => (index % 2 === identity?.meta["index"] ? won : lost)));
    expect(await ok("listAuditEvents", home.key, { type: "identity.create" })).toHaveLength(1);
  });
});

describe("a retry of a call that got no response", () => {
  const { createKey, rerollKey } = KeysService.method;
  const headersOf = (key: string) => ({ authorization: `Bearer ${key}`, "idempotency-key": "again" });
  const overGrpc = (app: TestApp) => createGrpcTransport({ baseUrl: `http://${app.grpcAddress}` });

  /** Blocks every change while `meanwhile` runs, by whileLocked the audit table, which every change writes. */
  async function whileLocked<T>(meanwhile: () => Promise<T>): Promise<T> {
    const own = await sql.reserve();
    try {
      await own`begin`;
      await own`lock table audit_events in access exclusive mode`;
      return await meanwhile();
    } finally {
      await own`rollback`;
      own.release();
    }
  }

  /** The sessions whose statements wait for a lock. */
  const waiting = () => sql<{ pid: number }[]>`
    select pid from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()`;

  const codeOf = (error: unknown) => Code[ConnectError.from(error).code];

  /** Calls while every change is blocked. Returns the error code, and checks that the call stored nothing. */
  async function failingCall(
    key: string,
    timeoutMs: number,
    meanwhile: () => Promise<unknown>,
  ): Promise<string | undefined> {
    const count = () => Promise.all([countRows("keys"), countRows("audit_events"), countRows("idempotency_records")]);
    const before = await count();
    const code = await whileLocked(async () => {
      const call = overGrpc(contract.app).unary(createKey, undefined, timeoutMs, headersOf(key), {});
      const failed = call.then(() => "none", codeOf);
      await expect.poll(waiting, { timeout: 5_000 }).toHaveLength(1);
      await meanwhile();
      const code = await failed;
      await expect.poll(waiting, { timeout: 5_000 }).toHaveLength(0);
      return code;
    });
    expect(await count()).toEqual(before);
    return code;
  }

  /** Calls twice, and checks that only one key is created. */
  async function expectOneKey({ home, ok }: Scene): Promise<void> {
    const again = () => ok("createKey", home.key, {}, withKey("again"));
    const { keyId } = await again();
    expect(await again()).toMatchObject({ keyId });
    expect((await ok("listKeys", home.key)).map((key) => key.keyId)).toEqual([home.keyId, keyId]);
  }

  test("makes the change once, if the first call exceeded its deadline", async () => {
    const scene = await openScene(contract.protocols.grpc, contract.clock);
    expect(await failingCall(scene.home.key, 700, async () => {})).toBe("DeadlineExceeded");
    await expectOneKey(scene);
  });

  test("makes the change once, if the first call lost its database connection", async () => {
    const scene = await openScene(contract.protocols.grpc, contract.clock);
    const terminateSessions = async () => {
      for (const { pid } of await waiting()) await sql`select pg_terminate_backend(${pid})`;
    };
    expect(await failingCall(scene.home.key, 10_000, terminateSessions)).toBe("Unavailable");
    await expectOneKey(scene);
  });

  test("gets the first response, if the change was committed, and by then every replica applies it", async () => {
    const database = await createDatabase(inject("template"));
    const own = openSql(database.url, { max: 1 });
    // Long enough for the client to disconnect between the commit and the response.
    const leaseMs = 500;
    await own`update cluster_state set lease_ms = ${leaseMs}, wait_ms = ${leaseMs}`;
    const apps = await Promise.all([1, 2].map(() => openTestApp({ databaseUrl: database.url })));
    const protocols = apps.map(openProtocols) as [ProtocolClients, ProtocolClients];
    try {
      const { ok, home } = await openScene(protocols[0].grpc, contract.clock);
      const old = await ok("createKey", home.key, { scopes: ["*"] });
      await protocols[1].grpc.call("listKeys", old.key, {}); // the second replica now has it cached
      const client = new AbortController();
      const transport = overGrpc(apps[0] as TestApp);
      const lost = transport.unary(rerollKey, client.signal, undefined, headersOf(home.key), { keyId: old.keyId });
      const failed = lost.then(() => "none", codeOf);
      await expect.poll(() => own`select from audit_events where type = 'key.reroll'`).toHaveLength(1);
      client.abort();
      expect(await failed).toBe("Canceled");

      const repeatedAt = performance.now();
      const { keyId, key } = await ok("rerollKey", home.key, { keyId: old.keyId }, withKey("again"));
      // A replica may have seen the change earlier by chance. After a lease time, it must have.
      expect(performance.now() - repeatedAt).toBeGreaterThanOrEqual(leaseMs);
      expect(await protocols[1].grpc.call("listKeys", old.key, {})).toMatchObject({
        code: "authentication/key_expired",
      });
      expect(await protocols[1].grpc.call("listKeys", key, {})).toMatchObject({ ok: true });
      const all = await ok("listKeys", home.key);
      expect(all.map((one) => one.keyId)).toEqual([home.keyId, old.keyId, keyId]);
    } finally {
      for (const one of protocols) one.close();
      await Promise.all(apps.map((app) => app.close()));
      await own.end();
      await database.drop();
    }
  });
});
