import type postgres from "postgres";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { openSql } from "../../../commands/open-sql.js";
import { openProtocols, type ProtocolClients } from "../../support/clients/all.js";
import type { CallRequest } from "../../support/clients/protocol-client.js";
import { openTestApp, operatorKey, type TestApp } from "../../support/harness.js";
import { findPartialChanges } from "../../support/integrity.js";
import type { OperationName } from "../../support/operations.js";
import type { ResponseData } from "../../support/responses.js";

let app: TestApp;
let protocols: ProtocolClients;
let sql: postgres.Sql;
let home: ResponseData["createWorkspace"];

beforeAll(async () => {
  app = await openTestApp();
  protocols = openProtocols(app);
  sql = openSql(app.databaseUrl, { max: 2, onnotice: () => {} });
  home = await ok("createWorkspace", { name: "home" }, operatorKey);
});
afterAll(async () => {
  await sql.end();
  protocols.close();
  await app.close();
});

async function ok<Name extends OperationName>(name: Name, request: CallRequest, credential = home.key) {
  const outcome = await protocols.grpc.call(name, credential, request);
  if (!outcome.ok) return expect.fail(`${name} was refused: ${outcome.code}: ${outcome.detail}`);
  return outcome.data as ResponseData[Name];
}

/** Makes the call while a transaction has uncommitted changes, and commits once the call waits for its lock. */
async function whileChanging(
  change: (transaction: postgres.TransactionSql) => Promise<unknown>,
  operation: OperationName,
  request: CallRequest,
  credential = home.key,
): Promise<string> {
  const { outcome } = await sql.begin(async (transaction) => {
    await change(transaction);
    const outcome = protocols.grpc.call(operation, credential, request);
    await expect
      .poll(() => sql`select from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'`)
      .toHaveLength(1);
    return { outcome };
  });
  const ended = await outcome;
  return ended.ok ? "ok" : ended.code;
}

/** Deletes a role or an API as its statement does. */
const deleteRow = (table: "roles" | "apis", id: string) => async (transaction: postgres.TransactionSql) => {
  const column = table === "roles" ? "role_id" : "api_id";
  await transaction`select from ${sql(table)} where ${sql(column)} = ${id} for update`;
  await transaction`update ${sql(table)} set deleted_at = now() where ${sql(column)} = ${id}`;
};

describe("a role that is deleted", () => {
  it("while a key gets it: the key does not get it", async () => {
    for (const [operation, request] of [
      ["createKey", {}],
      ["updateKey", { keyId: (await ok("createKey", {})).keyId }],
      ["addRoles", { keyId: (await ok("createKey", {})).keyId }],
      ["setRoles", { keyId: (await ok("createKey", {})).keyId }],
    ] as [OperationName, CallRequest][]) {
      const { roleId } = await ok("createRole", { name: `given by ${operation}` });
      const outcome = await whileChanging(deleteRow("roles", roleId), operation, { ...request, roles: [roleId] });
      expect(outcome).toBe("data/role_not_found");
    }
  });

  it("while a key that has it gets another: the key gets the other", async () => {
    const { roleId } = await ok("createRole", { name: "lost" });
    await ok("createRole", { name: "gained", permissions: ["a"] });
    const { keyId } = await ok("createKey", { roles: ["lost"] });
    const others: CallRequest = { keyId, roles: ["gained"] };
    await sql.begin(async (transaction) => {
      await deleteRow("roles", roleId)(transaction);
      // The role that the key has is not locked: the change does not wait.
      await ok("addRoles", others);
    });
    expect(await ok("getKey", { keyId })).toMatchObject({ roles: ["gained"] });
  });

  it("waits for a key that is getting it, which then loses it", async () => {
    const { roleId } = await ok("createRole", { name: "short-lived", permissions: ["a"] });
    const { keyId, key } = await ok("createKey", {});
    const give = async (transaction: postgres.TransactionSql) => {
      await transaction`select from roles where role_id = ${roleId} for key share`;
      await transaction`update keys set role_ids = ${[roleId]}::text[] where key_id = ${keyId}`;
    };
    expect(await whileChanging(give, "deleteRole", { role: roleId })).toBe("ok");
    expect(await ok("verifyKey", { key, permissions: "a" })).toMatchObject({ code: "INSUFFICIENT_PERMISSIONS" });
    await sql`update keys set role_ids = '{}' where key_id = ${keyId}`;
  });

  it("while its permissions change: the change is refused", async () => {
    const { roleId } = await ok("createRole", { name: "changing" });
    const request = { roleId, permissions: ["a"] };
    expect(await whileChanging(deleteRow("roles", roleId), "setRolePermissions", request)).toBe("data/role_not_found");
  });
});

describe("an API that is deleted", () => {
  it("while keys are created, changed, rerolled or deleted in it: they do not exist", async () => {
    for (const [operation, request, code] of [
      ["createKey", {}, "data/api_not_found"],
      [
        "migrateKeys",
        { migrationId: "m", keys: [{ hash: Buffer.alloc(32, 7).toString("base64") }] },
        "data/api_not_found",
      ],
      ["updateKey", { name: "x" }, "data/key_not_found"],
      ["addPermissions", { permissions: ["a"] }, "data/key_not_found"],
      ["rerollKey", {}, "data/key_not_found"],
      ["deleteKey", {}, "data/key_not_found"],
    ] as [OperationName, CallRequest, string][]) {
      const { apiId } = await ok("createApi", { name: operation });
      const { keyId } = await ok("createKey", { apiId });
      const reference = code === "data/api_not_found" ? { apiId } : { keyId };
      const outcome = await whileChanging(deleteRow("apis", apiId), operation, { ...request, ...reference });
      expect([operation, outcome]).toEqual([operation, code]);
      const [left] = await sql`
        select count(*)::int from keys where api_id = ${apiId} and deleted_at is null`;
      expect(left).toEqual({ count: 1 });
    }
  });

  it("privilege escalation: waits for a key that is being created in it, and is refused for its scopes", async () => {
    const { apiId } = await ok("createApi", { name: "admin" });
    const { key } = await ok("createKey", { scopes: ["apis.delete"] });
    const { keyId } = await ok("createKey", { scopes: ["*"] });
    const join = async (transaction: postgres.TransactionSql) => {
      await transaction`select from apis where api_id = ${apiId} for key share`;
      await transaction`update keys set api_id = ${apiId} where key_id = ${keyId}`;
    };
    const refusal = "authorization/insufficient_permissions";
    expect(await whileChanging(join, "deleteApi", { apiId }, key)).toBe(refusal);
    expect(await ok("getApi", { apiId })).toMatchObject({ name: "admin" });
    await sql`update keys set api_id = null where key_id = ${keyId}`;
  });

  it("at the same time as a role and an identity of its keys leaves whole changes", async () => {
    for (let round = 0; round < 5; round++) {
      const { apiId } = await ok("createApi", { name: `round ${round}` });
      const { roleId } = await ok("createRole", { name: `round ${round}` });
      const { keyId } = await ok("createKey", { apiId, roles: [roleId], externalId: `user ${round}` });
      const calls: [OperationName, CallRequest][] = [
        ["deleteApi", { apiId }],
        ["deleteRole", { role: roleId }],
        ["deleteIdentity", { externalId: `user ${round}` }],
        ["rerollKey", { keyId }],
        ["addRoles", { keyId, roles: [roleId] }],
        ["updateKey", { keyId, name: "renamed" }],
      ];
      await Promise.all(
        calls.map(([operation, request], index) =>
          protocols[index % 2 === 0 ? "grpc" : "http"].call(operation, home.key, request),
        ),
      );
      expect((await ok("listKeys", {})).filter((key) => key.apiId === apiId)).toEqual([]);
    }
    const partial = await findPartialChanges(sql);
    // The rows that this file has changed without their events.
    expect(partial.filter((violation) => !/^(exactly the deleted|the usage)/.test(violation))).toEqual([]);
  });
});
