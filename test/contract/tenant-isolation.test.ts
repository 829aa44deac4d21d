import { randomBytes, randomUUID } from "node:crypto";
import { type DescField, ScalarType } from "@bufbuild/protobuf";
import { context, propagation, trace } from "@opentelemetry/api";
import { InMemorySpanExporter, NodeTracerProvider, SimpleSpanProcessor } from "@opentelemetry/sdk-trace-node";
import type postgres from "postgres";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { openSql } from "../../commands/open-sql.js";
import { mintId } from "../../src/ids.js";
import { mintSecret } from "../../src/keys/secret.js";
import { buildPage, type ListName } from "../../src/pagination.js";
import { succeed } from "../support/calls.js";
import { createWorkspace } from "../support/clients/http-requests.js";
import type { RawResponse } from "../support/clients/sockets.js";
import { redisInUse } from "../support/clients/verify-calls.js";
import { headerOf, openWire, type Wire, type WireClient } from "../support/clients/wire.js";
import { openTestApp, type TestApp } from "../support/harness.js";
import { parseSamples } from "../support/metric-samples.js";
import { type Rpc, requestOf, rpcs, type Things } from "../support/rpcs.js";

/** The value of each request field that names a resource, for a resource that may exist in another workspace. */
const names: Readonly<Record<string, (theirs: Things, rpc: Rpc) => string | undefined>> = {
  workspaceId: ({ workspaceId }) => workspaceId,
  keyId: ({ keyId }) => keyId,
  key: ({ key }) => key,
  identityId: ({ identityId }) => identityId,
  externalId: ({ externalId }) => externalId,
  identity: ({ externalId }) => externalId,
  resourceId: ({ keyId }) => keyId,
  search: ({ externalId }) => externalId,
  apiId: ({ apiId }) => apiId,
  roleId: ({ roleId }) => roleId,
  role: ({ roleName }) => roleName,
  roles: ({ roleName }) => roleName,
  permission: ({ slug }) => slug,
  slug: ({ slug }) => slug,
  namespace: ({ namespace }) => namespace,
  identifier: ({ identifier }) => identifier,
  "PermissionsService.CreateRole name": ({ roleName }) => roleName,
  "PermissionsService.ListRoles search": ({ roleName }) => roleName,
  "PermissionsService.ListPermissions search": ({ slug }) => slug,
  cursor: (theirs, { method }) => cursorAfter(listOf[method.localName], theirs),
};

/** The lists that have cursors. */
const listOf: Readonly<Record<string, ListName>> = {
  listKeys: "keys",
  listIdentities: "identities",
  listAuditEvents: "events",
  listApis: "apis",
  listPermissions: "permissions",
  listRoles: "roles",
  listOverrides: "overrides",
};

/** Fields that do not refer to a resource. */
const nonReferences = new Set(["name", "prefix", "scopes", "permissions", "type"]);
for (const field of ["description", "migrationId", "operation", "tag", "tags"]) nonReferences.add(field);

const named = rpcs
  .filter(({ access }) => access.scope !== "")
  .flatMap((rpc) => textsOf(rpc).map((field) => ({ rpc, field, name: `${rpc.name} by its ${field.jsonName}` })));

/** The function for a field's value, by the field of one RPC or by its name. Undefined: it refers to nothing. */
function referenceOf(rpc: Rpc, { jsonName }: DescField) {
  return names[`${rpc.name} ${jsonName}`] ?? names[jsonName];
}

/** The string fields of a request. */
function textsOf({ method }: Rpc): DescField[] {
  return method.input.fields.filter(({ scalar }) => scalar === ScalarType.STRING);
}

const exporter = new InMemorySpanExporter();
const provider = new NodeTracerProvider({ spanProcessors: [new SimpleSpanProcessor(exporter)] });
let app: TestApp;
let wire: Wire;
let sql: postgres.Sql;
let mine: { workspaceId: string; key: string };
/** The id of a key in my workspace, and the name of a role. */
let own: string;
let ownRole: string;
let neighbour: { workspaceId: string; key: string };

// Each comparison is made once, without retries, so that no difference can be missed. Two calls differ for other
// reasons only if a busy machine makes Redis time out for one of them, or makes the service shed it. The options below
// prevent both. A lost lease only delays the call, and times are not compared.
beforeAll(async () => {
  provider.register();
  app = await openTestApp({ guard: { accepts: () => true } });
  await redisInUse(app);
  wire = openWire(app);
  sql = openSql(app.databaseUrl, { max: 2, onnotice: () => {} });
  mine = await createWorkspace(app.httpUrl);
  neighbour = await createWorkspace(app.httpUrl);
  ({ keyId: own = "", roleName: ownRole = "" } = await makeThings(mine));
});
afterAll(async () => {
  wire.close();
  await sql.end();
  await app.close();
  await provider.shutdown();
  for (const api of [trace, propagation, context]) api.disable();
});

test("every string field of a key's requests is classified: it refers to a resource, or it does not", () => {
  const unknown = named.filter(
    ({ rpc, field }) => referenceOf(rpc, field) === undefined && !nonReferences.has(field.jsonName),
  );
  expect(unknown.map(({ name }) => name)).toEqual([]);
});

describe.each(named.filter(({ rpc, field }) => referenceOf(rpc, field)))("$name", ({ rpc, field }) => {
  test("tenant isolation: responds, and queries its backends, as if another workspace's resource did not exist", async () => {
    const clients = wire.clientsFor(rpc);
    const theirs = await Promise.all(clients.map(() => makeThings(neighbour)));
    for (const [index, client] of clients.entries()) {
      const there = nameOf(theirs[index] ?? {}, rpc, field);
      const nowhere = nameOf(inventThings(), rpc, field);
      // A call that touches a row of the other workspace would wait for these locks until it fails.
      const found = await sql.begin(async (transaction) => {
        for (const table of ["keys", "identities", "workspaces", "apis", "roles", "permissions"]) {
          await transaction`select from ${sql(table)} where workspace_id = ${neighbour.workspaceId} for update`;
        }
        return observe(client, rpc, field, there);
      });
      const missed = await observe(client, rpc, field, nowhere);
      expect(["ok", ...rpc.notFound], client.name).toContain(missed.code);
      expect(found, client.name).toEqual(missed);
    }
  });
});

test("tenant isolation: another workspace's key that is cached here takes the same lookups as an unknown key", async () => {
  const rpc = rpcs.find(({ method }) => method.localName === "verifyKey") ?? expect.fail("there is no verifyKey");
  const field = rpc.method.input.field["key"] ?? expect.fail("verifyKey has no key");
  for (const client of wire.clientsFor(rpc)) {
    const { key = "" } = await makeThings(neighbour);
    await succeed(app.httpUrl, "keys.verifyKey", neighbour.key, { key });
    const found = await observe(client, rpc, field, key);
    expect(found).toEqual(await observe(client, rpc, field, mintSecret().plaintext));
  }
});

function nameOf(things: Things, rpc: Rpc, field: DescField): string {
  return referenceOf(rpc, field)?.(things, rpc) ?? expect.fail(`no resource that ${field.jsonName} could name`);
}

/** Creates a resource of each kind in a workspace; also returns the id of the key's event. */
async function makeThings({ workspaceId, key }: { workspaceId: string; key: string }): Promise<Things> {
  const externalId = `user-${randomUUID()}`;
  const made = await succeed<{ keyId: string; key: string }>(app.httpUrl, "keys.createKey", key, { externalId });
  const [event] = await sql<
    { id: string }[]
  >`select event_id as id from audit_events where resource_id = ${made.keyId}`;
  const [identity] = await sql<{ id: string }[]>`
    select identity_id as id from identities where external_id = ${externalId}`;
  const things = { workspaceId, ...made, externalId, identityId: identity?.id ?? "", eventId: event?.id ?? "" };
  return { ...things, ...(await makeMoreThings(key)), name: "new" };
}

/** Creates an API, a role, a permission and an override, and uses its limit. */
async function makeMoreThings(key: string): Promise<Things> {
  const call = (operation: string, body: object) => succeed<Things>(app.httpUrl, operation, key, body);
  const { roleName, slug, namespace, identifier } = inventThings();
  const [{ apiId }, { roleId }, { permissionId }, { overrideId }] = (await Promise.all([
    call("apis.createApi", { name: "payments" }),
    call("permissions.createRole", { name: roleName, permissions: ["documents.read"] }),
    call("permissions.createPermission", { name: "Read documents", slug }),
    call("ratelimit.setOverride", { namespace, identifier, limit: 1, duration: 60_000 }),
  ])) as [Things, Things, Things, Things];
  await call("ratelimit.limit", { namespace, identifier, limit: 9, duration: 60_000 });
  return {
    ...definite({ apiId, roleId, permissionId, overrideId }),
    ...definite({ roleName, slug, namespace, identifier }),
  };
}

function definite(things: Readonly<Record<string, string | undefined>>): Things {
  return Object.fromEntries(Object.entries(things).map(([name, thing]) => [name, thing ?? expect.fail(name)]));
}

/** Ids of the same form that do not exist, generated later than existing ones. */
function inventThings(): Things {
  return {
    workspaceId: mintId("ws"),
    keyId: mintId("key"),
    key: mintSecret().plaintext,
    externalId: `user-${randomUUID()}`,
    identityId: mintId("id"),
    eventId: mintId("evt"),
    apiId: mintId("api"),
    roleId: mintId("role"),
    permissionId: mintId("perm"),
    overrideId: mintId("ovr"),
    roleName: `editor-${randomUUID()}`,
    slug: `documents.${randomUUID()}`,
    namespace: `email-${randomUUID()}`,
    identifier: `user-${randomUUID()}`,
  };
}

/** The cursor of a page whose last row is one of these resources. */
function cursorAfter(list: ListName | undefined, things: Things): string | undefined {
  const last = {
    keys: things["keyId"],
    identities: things["identityId"],
    events: things["eventId"],
    apis: things["apiId"],
    permissions: things["permissionId"],
    roles: things["roleId"],
    overrides: things["overrideId"],
    workspaces: undefined,
  }[list ?? "workspaces"];
  if (list === undefined || last === undefined) return undefined;
  return buildPage(list, { limit: 1, after: "" }, [last, ""], (id) => id).pagination.cursor;
}

/** Values for fields that must be set, and that refer to nothing in either workspace. */
const neutral = { name: "new", namespace: "sms", identifier: "nobody", migrationId: "from another service" };

const use = { identifier: "anybody", limit: 9, duration: 60_000 };

/** Everything observable about a call, without values that differ by chance. */
async function observe(client: WireClient, rpc: Rpc, { jsonName, fieldKind }: DescField, value: string) {
  // The overrides of a namespace are read once, so both calls must find them cached.
  await succeed(app.httpUrl, "ratelimit.limit", mine.key, { namespace: neutral.namespace, ...use });
  const before = await readCounts();
  const unused = { slug: `documents.${randomUUID()}`, hash: randomBytes(32).toString("base64") };
  const request = {
    ...requestOf(rpc, { keyId: own, role: ownRole, ...unused, ...neutral }),
    [jsonName]: fieldKind === "list" ? [value] : value,
  };
  const response = await client.send(`Bearer ${mine.key}`, client.write(request));
  const outcome = await client.read(response);
  const backends = await backendCalls(headerOf(response, "x-request-id"));
  const after = await readCounts();
  return {
    code: outcome.code,
    response: comparableResponse(response, "json" in outcome ? outcome.json : undefined, value),
    backends,
    counts: after.map((count, index) => count - (before[index] ?? 0)),
  };
}

/**
 * A response without its request id, its date, and the value that was sent. A successful response contains new ids,
 * times and a secret, so its length differs by chance.
 */
function comparableResponse(
  { status, headerLines, body }: RawResponse,
  message: string | undefined,
  value: string,
): unknown[] {
  const chance = message === undefined ? ["date"] : ["date", "content-length"];
  const shown = headerLines.map(([name, text]) => [name, chance.includes(name) ? "" : decoded(name, text)].join(": "));
  const content = message === undefined ? decodedDetails(body.toString("latin1")) : withoutNewValues(message);
  return [status, ...shown, content].map((text) => {
    return typeof text === "string" ? text.replaceAll(/req_[0-9a-z]{26}/g, "req").replaceAll(value, "value") : text;
  });
}

function decoded(name: string, text: string): string {
  return name.endsWith("-bin") ? Buffer.from(text, "base64").toString("latin1") : text;
}

/** Connect and gRPC-Web encode error details, which contain the request id, as base64 in the body. */
function decodedDetails(body: string): string {
  return body.replaceAll(/(?<="value":"|-bin: )[^"\r]+/g, (text) => Buffer.from(text, "base64").toString("latin1"));
}

function withoutNewValues(message: string): string {
  return message
    .replaceAll(/\b(key|id|evt|api|role|perm|ovr|rl)_[0-9a-z]{26}\b/g, "$1")
    .replaceAll(/\b\w+_[0-9A-Za-z]{39}\b/g, "secret")
    .replaceAll(/\b\d{13}\b|"\d{4}-[^"]+Z"/g, "time");
}

/** The queries to PostgreSQL and Redis of a finished call, in order. */
async function backendCalls(requestId: string | undefined): Promise<unknown[]> {
  const ended = () =>
    exporter.getFinishedSpans().find(({ attributes }) => attributes["latchkey.request_id"] === requestId);
  await expect.poll(ended, { timeout: 5_000, interval: 2 }).toBeDefined();
  const id = ended()?.spanContext().spanId;
  const spans = exporter.getFinishedSpans().filter(({ parentSpanContext }) => parentSpanContext?.spanId === id);
  return spans.map(({ attributes }) => attributes);
}

/** The lookups of keys and workspaces outside this process so far, and the numbers of events and identities. */
async function readCounts(): Promise<number[]> {
  const samples = parseSamples(await (await app.metrics()).metrics());
  const lookups = samples
    .filter(({ name, labels }) => name === "latchkey_lookups_total" && labels["source"] !== "memory")
    .map(({ value }) => value);
  const [rows] = await sql<{ events: number; identities: number }[]>`
    select (select count(*)::int from audit_events) as events, (select count(*)::int from identities) as identities`;
  return [...lookups, rows?.events ?? 0, rows?.identities ?? 0];
}
