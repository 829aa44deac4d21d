import type postgres from "postgres";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from "vitest";
import { openSql } from "../../../commands/open-sql.js";
import { changeLeaseTime, migrateDatabase } from "../../../src/app.js";
import { newKey } from "../../contract/retries.js";
import { succeed } from "../../support/calls.js";
import { openProtocols, type ProtocolClients } from "../../support/clients/all.js";
import type { HeaderLines } from "../../support/clients/headers.js";
import { createWorkspace } from "../../support/clients/http-requests.js";
import type { CallRequest, ProtocolClient } from "../../support/clients/protocol-client.js";
import { openTestApp, operatorKey, type TestApp } from "../../support/harness.js";
import type { OperationName } from "../../support/operations.js";
import { type OwnPostgres, openOwnPostgres } from "../../support/own-postgres.js";

let own: OwnPostgres;
let app: TestApp;
let protocols: ProtocolClients;
let sql: postgres.Sql;
let committer: postgres.Sql;
let workspaceId: string;
let key: string;

beforeAll(async () => {
  own = await openOwnPostgres();
  await migrateDatabase(own.url);
  sql = openSql(own.url, { max: 1, onnotice: () => {} });
  committer = openSql(own.url, { max: 1, onnotice: () => {} });
  await sql`update cluster_state set lease_ms = 50, wait_ms = 50`;
  app = await openTestApp({ databaseUrl: own.url });
  protocols = openProtocols(app);
});
afterAll(async () => {
  protocols?.close();
  await app?.close();
  await committer?.end({ timeout: 1 });
  await sql?.end({ timeout: 1 });
  await own?.close();
});
beforeEach(async () => {
  ({ workspaceId, key } = await createWorkspace(app.httpUrl));
});
afterEach(() => requireStandby(false));

/** Makes every commit wait for a synchronous standby, which does not exist; or ends the waits. */
async function requireStandby(required: boolean): Promise<void> {
  const names = required ? "*" : "";
  await sql.unsafe(`alter system set synchronous_standby_names = '${names}'`);
  await sql`select pg_reload_conf()`;
  const setting = async () => (await sql`select current_setting('synchronous_standby_names') as names`)[0]?.["names"];
  await expect.poll(setting).toBe(names);
  // Commits follow the setting only when the checkpointer has read it, which no view of PostgreSQL shows.
  if (required) await expect.poll(() => cancelWaitsUntil(commit())).toBeGreaterThan(0);
}

/** Commits a transaction that changes nothing. */
const commit = () => committer`select pg_logical_emit_message(true, 'test', '')`;

/** Cancels every wait for the standby, as administrators and timeouts do, until the call ends. */
async function cancelWaits<T>(response: Promise<T>): Promise<T> {
  expect(await cancelWaitsUntil(response), "commits that waited for the standby").toBeGreaterThan(0);
  return response;
}

/** @returns how many waits were cancelled */
async function cancelWaitsUntil(work: Promise<unknown>): Promise<number> {
  let ended = false;
  const onEnd = () => {
    ended = true;
  };
  work.then(onEnd, onEnd);
  let cancelled = 0;
  while (!ended) {
    const found = await sql`select pg_cancel_backend(pid) from pg_stat_activity where wait_event = 'SyncRep'`;
    cancelled += found.count;
  }
  return cancelled;
}

const outcomeUnknown = {
  ok: false,
  code: "application/service_unavailable",
  detail: expect.stringContaining("whether it took effect is unknown"),
};

const create = <T>(operation: string, body: object) => succeed<T>(app.httpUrl, operation, key, body);
const createKey = (name: string) => create<{ keyId: string }>("keys.createKey", { name });
const createIdentity = (externalId: string) =>
  create<{ identityId: string }>("identities.createIdentity", { externalId });

/** Prepares a new request for each protocol. */
type Prepare = (protocol: ProtocolClient) => Promise<CallRequest>;
const keyIdOnly: Prepare = async ({ name }) => ({ keyId: (await createKey(name)).keyId });
const identityIdOnly: Prepare = async ({ name }) => ({ identityId: (await createIdentity(name)).identityId });

describe("durability: a change whose wait for a synchronous standby was cancelled is unknown, not done:", () => {
  it.each<[OperationName, Prepare]>([
    ["createKey", async () => ({ name: "new" })],
    ["updateKey", async (protocol) => ({ ...(await keyIdOnly(protocol)), enabled: false })],
    ["deleteKey", keyIdOnly],
    ["rerollKey", keyIdOnly],
    ["createIdentity", async ({ name }) => ({ externalId: `${name} new` })],
    ["updateIdentity", async (protocol) => ({ ...(await identityIdOnly(protocol)), meta: { plan: "pro" } })],
    ["deleteIdentity", identityIdOnly],
    ["disableWorkspace", async () => ({ workspaceId, reason: "UNPAID_BILLING" })],
    ["enableWorkspace", async () => ({ workspaceId })],
    ["createWorkspace", async () => ({ name: "new" })],
    ["createRootKey", async () => ({ workspaceId })],
  ])("%s", async (operation, prepare) => {
    const credential = operation.includes("Workspace") || operation === "createRootKey" ? operatorKey : key;
    for (const protocol of [protocols.http, protocols.grpc]) {
      const request = await prepare(protocol);
      await requireStandby(true);
      expect(await cancelWaits(protocol.call(operation, credential, request))).toEqual(outcomeUnknown);
      await requireStandby(false);
    }
  });
});

describe("durability: a response that only acknowledges an earlier change also waits for the standby:", () => {
  const noHeaders: HeaderLines = [];
  const exists = { ok: false, code: "data/identity_already_exists" };
  const notFound = (resource: string) => ({ ok: false, code: `data/${resource}_not_found` });

  it.each<[name: string, OperationName, Prepare, HeaderLines, response: object]>([
    ["a key that is already deleted", "deleteKey", keyIdOnly, noHeaders, notFound("key")],
    ["an identity that is already deleted", "deleteIdentity", identityIdOnly, noHeaders, notFound("identity")],
    ["a key without changes", "updateKey", keyIdOnly, noHeaders, { ok: true }],
    ["an identity without changes", "updateIdentity", identityIdOnly, noHeaders, { ok: true }],
    ["a retried creation", "createKey", async () => ({ name: "retried" }), newKey(), { ok: true }],
    ["a retried creation of an identity", "createIdentity", async () => ({ externalId: "x" }), newKey(), { ok: true }],
    ["an identity that already exists", "createIdentity", async () => ({ externalId: "y" }), noHeaders, exists],
    ["a retried reroll", "rerollKey", keyIdOnly, newKey(), { ok: true }],
  ])("%s (%s)", async (_name, operation, prepare, headers, response) => {
    const request = await prepare(protocols.http);
    const call = (protocol: ProtocolClient) => protocol.call(operation, key, request, headers);
    await requireStandby(true);
    // The first call may make the change. The others only acknowledge it.
    for (const protocol of [protocols.http, protocols.http, protocols.grpc])
      expect(await cancelWaits(call(protocol))).toEqual(outcomeUnknown);
    await requireStandby(false);
    expect(await call(protocols.grpc)).toMatchObject(response);
    expect(await call(protocols.http)).toMatchObject(response);
  });
});

it("a lease time that a synchronous standby has not confirmed has no effect, and is reported as unknown", async () => {
  const read = async () => (await sql`select lease_ms, wait_ms from cluster_state`)[0];
  await requireStandby(true);
  await expect(cancelWaits(changeLeaseTime(own.url, 100))).rejects.toThrow(
    "PostgreSQL has not confirmed the lease time",
  );
  expect(await read()).toEqual({ lease_ms: 50, wait_ms: 100 });
  await requireStandby(false);
  await changeLeaseTime(own.url, 50);
  expect(await read()).toEqual({ lease_ms: 50, wait_ms: 50 });
});
