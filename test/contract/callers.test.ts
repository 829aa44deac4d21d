import { randomUUID } from "node:crypto";
import type postgres from "postgres";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { openSql } from "../../commands/open-sql.js";
import { succeed } from "../support/calls.js";
import { errorTable } from "../support/clients/outcome.js";
import type { RawResponse } from "../support/clients/sockets.js";
import { headerOf, openWire, type Wire, type WireClient } from "../support/clients/wire.js";
import { openTestApp, operatorKey, type TestApp } from "../support/harness.js";
import { type Rpc, requestOf, rpcs, type Things } from "../support/rpcs.js";
import { type Caller, type Cast, callersOf, castCallers, newHash } from "./callers.js";

let app: TestApp;
let wire: Wire;
let sql: postgres.Sql;
let cast: Cast;

beforeAll(async () => {
  app = await openTestApp();
  wire = openWire(app);
  sql = openSql(app.databaseUrl, { max: 1, onnotice: () => {} });
  cast = await castCallers(app, rpcs);
});
afterAll(async () => {
  wire.close();
  await sql.end();
  await app.close();
});

const named = rpcs.map((rpc) => ({ ...rpc, rpc }));

describe.each(named)("$name, with every kind of caller and protocol", ({ rpc }) => {
  test("authenticates and authorizes before it validates the body, and a refused call changes nothing", async () => {
    const before = await readEverything();
    for (const client of wire.clientsFor(rpc)) {
      const good = client.write(requestOf(rpc, cast.things));
      const calls = callersOf(rpc, cast).flatMap((caller) =>
        // An admitted caller is recognized by the error about its invalid body.
        [client.garbage, ...(caller.refusal(rpc) ? [good] : [])].map(async (payload) => {
          const response = await client.send(caller.authorization, payload);
          const expected = caller.refusal(rpc) ?? "application/invalid_input";
          return { caller: caller.name, expected, code: await checkedCode(client, response) };
        }),
      );
      const outcomes = await Promise.all(calls);
      expect(outcomes.length).toBeGreaterThan(30);
      expect(
        outcomes.filter(({ code, expected }) => code !== expected),
        client.name,
      ).toEqual([]);
    }
    expect(await readEverything()).toEqual(before);
  });

  test("succeeds for every caller that is authorized, also with the minimum of scopes", async () => {
    const admitted = callersOf(rpc, cast).filter((caller) => caller.refusal(rpc) === undefined);
    expect(admitted.length).toBeGreaterThan(0);
    for (const client of wire.clientsFor(rpc)) {
      const calls = admitted.map(async (caller) => {
        const request = client.write(requestOf(rpc, await renew(rpc, caller)));
        return { caller: caller.name, ...(await client.read(await client.send(caller.authorization, request))) };
      });
      const outcomes = await Promise.all(calls);
      expect(
        outcomes.filter(({ code }) => code !== "ok"),
        client.name,
      ).toEqual([]);
    }
  });

  test("tenant isolation: finds nothing of another workspace, and changes nothing there", async () => {
    const { name, externalId, ...things } = cast.things;
    const { namespace, identifier, slug, migrationId, hash, ...ids } = things;
    const before = await readEverything(things["workspaceId"]);
    const expected = rpc.access.scope === "" ? ["authorization/insufficient_permissions"] : rpc.notFound;
    // What a call creates in the other workspace must not be found there by others.
    const request = requestOf(rpc, expected.length > 0 ? things : { ...things, identifier: randomUUID() });
    await Promise.all(
      wire.clientsFor(rpc).flatMap((client) =>
        cast.foreignKeys.map(async (foreignKey) => {
          const outcome = await client.read(await client.send(`Bearer ${foreignKey}`, client.write(request)));
          if (expected.length > 0) expect(expected, client.name).toContain(outcome.code);
          // The response must not contain any id that the request named.
          else for (const id of Object.values(ids)) expect(JSON.stringify(outcome), client.name).not.toContain(id);
        }),
      ),
    );
    expect(await readEverything(things["workspaceId"])).toEqual(before);
  });
});

/** The error code of a response. Checks its status and its WWW-Authenticate challenge against the error table. */
async function checkedCode(client: WireClient, response: RawResponse): Promise<string> {
  const { code } = await client.read(response);
  if (!client.isHttp) return code;
  const { http } = errorTable[code] ?? {};
  expect(response.status, code).toBe(http);
  expect(headerOf(response, "www-authenticate"), code).toBe(challenges[code] ?? (http === 401 ? badToken : undefined));
  return code;
}

/** RFC 6750: the challenge names no error if the request has no credential. */
const challenges: Readonly<Record<string, string>> = { "authentication/missing": `Bearer realm="latchkey"` };
const badToken = `Bearer realm="latchkey", error="invalid_token"`;

/** The same ids, except that the resources named by the request are new: the call may delete them. */
async function renew(rpc: Rpc, caller: Caller): Promise<Things> {
  const request = requestOf(rpc, cast.things);
  const call = (operation: string, key: string, body: object) => succeed<Things>(app.httpUrl, operation, key, body);
  return {
    ...cast.things,
    externalId: randomUUID(),
    name: randomUUID(),
    slug: `documents.${randomUUID()}`,
    hash: newHash(),
    ...("apiId" in request && (await call("apis.createApi", cast.homeKey, { name: "another" }))),
    ...(("roleId" in request || "role" in request) && (await newRole())),
    ...("permission" in request && (await newPermission())),
    ...("identifier" in request && (await newOverride())),
    ...(("keyId" in request || "key" in request) && (await call("keys.createKey", cast.homeKey, {}))),
    ...("identityId" in request &&
      (await call("identities.createIdentity", cast.homeKey, { externalId: randomUUID() }))),
    ...("workspaceId" in request &&
      caller.name === "the operator" &&
      (await newWorkspace(rpc.name === "WorkspacesService.DeleteWorkspace"))),
  };
}

async function newWorkspace(isDisabled: boolean): Promise<Things> {
  const things = await succeed<Things>(app.httpUrl, "workspaces.createWorkspace", operatorKey, { name: "another" });
  const { workspaceId } = things;
  const disabling = { workspaceId, reason: "ACCOUNT_CLOSURE" };
  if (isDisabled) await succeed(app.httpUrl, "workspaces.disableWorkspace", operatorKey, disabling);
  return things;
}

async function newRole(): Promise<Things> {
  const role = { name: randomUUID() };
  const { roleId = "" } = await succeed<Things>(app.httpUrl, "permissions.createRole", cast.homeKey, role);
  return { roleId, role: roleId };
}

async function newPermission(): Promise<Things> {
  const permission = { name: "another", slug: `documents.${randomUUID()}` };
  await succeed(app.httpUrl, "permissions.createPermission", cast.homeKey, permission);
  return { permission: permission.slug };
}

async function newOverride(): Promise<Things> {
  const override = { namespace: "email.send", identifier: randomUUID() };
  await succeed(app.httpUrl, "ratelimit.setOverride", cast.homeKey, { ...override, limit: 5, duration: 60_000 });
  return override;
}

/**
 * Every row of every table, or of one workspace, without what calls update anyway, and later: `last_used_at`, and the counts
 * of verifications.
 */
async function readEverything(workspaceId?: string): Promise<string[]> {
  const tables = await sql<{ name: string }[]>`
    select table_name as name from information_schema.tables
    where table_schema = 'public' and table_name not like 'verification_count%'`;
  const rows = await Promise.all(
    tables.map(
      ({ name }) => sql<{ row: string }[]>`
        select (to_jsonb(t) - 'last_used_at')::text as row from ${sql(name)} t
        where ${workspaceId ?? null}::text is null or to_jsonb(t) ->> 'workspace_id' = ${workspaceId ?? null}`,
    ),
  );
  return rows
    .flat()
    .map(({ row }) => row)
    .sort();
}
