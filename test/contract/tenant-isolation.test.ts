import { randomUUID } from "node:crypto";
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
import { redisInUse } from "../support/clients/verify-calls.js";
import { headerOf, openWire, type Way, type Wire, type WireAnswer } from "../support/clients/wire.js";
import { openTestApp, patientWithRedis, type TestApp } from "../support/harness.js";
import { parseSamples } from "../support/metric-samples.js";
import { type Rpc, requestOf, rpcs, type Things } from "./rpcs.js";

/** By the name of a field: what it names, of which one may exist in another workspace. */
const names: Readonly<Record<string, (theirs: Things, rpc: Rpc) => string | undefined>> = {
  workspaceId: ({ workspaceId }) => workspaceId,
  keyId: ({ keyId }) => keyId,
  key: ({ key }) => key,
  identityId: ({ identityId }) => identityId,
  externalId: ({ externalId }) => externalId,
  identity: ({ externalId }) => externalId,
  resourceId: ({ keyId }) => keyId,
  search: ({ externalId }) => externalId,
  cursor: (theirs, { method }) => cursorAfter(listOf[method.localName], theirs),
};

/** The lists that have cursors. */
const listOf: Readonly<Record<string, ListName>> = {
  listKeys: "keys",
  listIdentities: "identities",
  listAuditEvents: "events",
};

/** What says nothing about what there is. */
const saysNothing = new Set(["name", "prefix", "scopes", "permissions", "type"]);

const named = rpcs
  .filter(({ access }) => access.scope !== "")
  .flatMap((rpc) => textsOf(rpc).map((field) => ({ rpc, field, name: `${rpc.name} by its ${field.jsonName}` })));

/** Every text that a request can hold. */
function textsOf({ method }: Rpc): DescField[] {
  return method.input.fields.filter(({ scalar }) => scalar === ScalarType.STRING);
}

const exporter = new InMemorySpanExporter();
const provider = new NodeTracerProvider({ spanProcessors: [new SimpleSpanProcessor(exporter)] });
let app: TestApp;
let wire: Wire;
let sql: postgres.Sql;
let mine: { workspaceId: string; key: string };
/** A key of mine. */
let own: string;
let neighbour: { workspaceId: string; key: string };

// A comparison is made once, so that no sign can hide in another try. Two calls differ by themselves only where a busy
// machine has the service give up on Redis for one of them, or turn it away; so it does neither. A lease that is lost is
// waited for, which shows in nothing but time.
beforeAll(async () => {
  provider.register();
  app = await openTestApp({ ...patientWithRedis, guard: { accepts: () => true } });
  await redisInUse(app);
  wire = openWire(app);
  sql = openSql(app.databaseUrl, { max: 2, onnotice: () => {} });
  mine = await createWorkspace(app.httpUrl);
  neighbour = await createWorkspace(app.httpUrl);
  own = (await makeThings(mine))["keyId"] ?? "";
});
afterAll(async () => {
  wire.close();
  await sql.end();
  await app.close();
  await provider.shutdown();
  for (const api of [trace, propagation, context]) api.disable();
});

test("every text that a key's request can hold is known to name something, or to name nothing", () => {
  const unknown = named.filter(
    ({ field: { jsonName } }) => names[jsonName] === undefined && !saysNothing.has(jsonName),
  );
  expect(unknown.map(({ name }) => name)).toEqual([]);
});

describe.each(named.filter(({ field }) => names[field.jsonName]))("$name", ({ rpc, field }) => {
  test("answers, and goes about it, as if what another workspace has were nowhere", async () => {
    for (const way of wire.waysTo(rpc)) {
      const there = nameOf(await makeThings(neighbour), rpc, field);
      const nowhere = nameOf(inventThings(), rpc, field);
      // Whoever touches a row of theirs would have to wait until the call is over.
      const found = await sql.begin(async (held) => {
        for (const table of ["keys", "identities", "workspaces"]) {
          await held`select from ${sql(table)} where workspace_id = ${neighbour.workspaceId} for update`;
        }
        return observe(way, rpc, field, there);
      });
      const missed = await observe(way, rpc, field, nowhere);
      expect(["ok", ...rpc.notFound], way.name).toContain(missed.code);
      expect(found, way.name).toEqual(missed);
    }
  });
});

test("a key of another workspace, once it is held here, is looked for as long as one that is nowhere", async () => {
  const rpc = rpcs.find(({ method }) => method.localName === "verifyKey") ?? expect.fail("there is no verifyKey");
  const field = rpc.method.input.field["key"] ?? expect.fail("verifyKey has no key");
  for (const way of wire.waysTo(rpc)) {
    const { key = "" } = await makeThings(neighbour);
    await succeed(app.httpUrl, "keys.verifyKey", neighbour.key, { key });
    const found = await observe(way, rpc, field, key);
    expect(found).toEqual(await observe(way, rpc, field, mintSecret().plaintext));
  }
});

function nameOf(things: Things, rpc: Rpc, { jsonName }: DescField): string {
  return names[jsonName]?.(things, rpc) ?? expect.fail(`nothing that ${jsonName} could name`);
}

/** A key and its identity in a workspace, and an event of theirs. */
async function makeThings({ workspaceId, key }: { workspaceId: string; key: string }): Promise<Things> {
  const externalId = `user-${randomUUID()}`;
  const made = await succeed<{ keyId: string; key: string }>(app.httpUrl, "keys.createKey", key, { externalId });
  const [event] = await sql<
    { id: string }[]
  >`select event_id as id from audit_events where resource_id = ${made.keyId}`;
  const [identity] = await sql<{ id: string }[]>`
    select identity_id as id from identities where external_id = ${externalId}`;
  return { workspaceId, ...made, externalId, identityId: identity?.id ?? "", eventId: event?.id ?? "", name: "new" };
}

/** Things of the same form that are nowhere, and were made later, as theirs were. */
function inventThings(): Things {
  return {
    workspaceId: mintId("ws"),
    keyId: mintId("key"),
    key: mintSecret().plaintext,
    externalId: `user-${randomUUID()}`,
    identityId: mintId("id"),
    eventId: mintId("evt"),
  };
}

/** The cursor of a page that ends with one of these things. */
function cursorAfter(list: ListName | undefined, { keyId, identityId, eventId }: Things): string | undefined {
  const last = { keys: keyId, identities: identityId, events: eventId, workspaces: undefined }[list ?? "workspaces"];
  if (list === undefined || last === undefined) return undefined;
  return buildPage(list, { limit: 1, after: "" }, [last, ""], (id) => id).pagination.cursor;
}

/** Everything that there is to see of a call, with what is chance left out. */
async function observe(way: Way, rpc: Rpc, { jsonName }: DescField, value: string) {
  const before = await readCounts();
  const request = { ...requestOf(rpc, { keyId: own, name: "new" }), [jsonName]: value };
  const answer = await way.send(`Bearer ${mine.key}`, way.write(request));
  const ending = await way.read(answer);
  const backends = await backendsAsked(headerOf(answer, "x-request-id"));
  const after = await readCounts();
  return {
    code: ending.code,
    told: toldBy(answer, "answer" in ending ? ending.answer : undefined, value),
    backends,
    counts: after.map((count, index) => count - (before[index] ?? 0)),
  };
}

/**
 * An answer as it was sent, but for its id, its moment, and the value that was sent. What is new in a success has ids,
 * times and a secret of its own, and the message is no longer or shorter for that only by chance.
 */
function toldBy({ status, headers, body }: WireAnswer, message: string | undefined, value: string): unknown[] {
  const chance = message === undefined ? ["date"] : ["date", "content-length"];
  const shown = headers.map(([name, text]) => [name, chance.includes(name) ? "" : decoded(name, text)].join(": "));
  const content = message === undefined ? decodedDetails(body.toString("latin1")) : withoutNews(message);
  return [status, ...shown, content].map((text) => {
    return typeof text === "string" ? text.replaceAll(/req_[0-9a-z]{26}/g, "req").replaceAll(value, "value") : text;
  });
}

function decoded(name: string, text: string): string {
  return name.endsWith("-bin") ? Buffer.from(text, "base64").toString("latin1") : text;
}

/** In Connect and gRPC-Web, details lie in the body, in base64, and the id of the request in them. */
function decodedDetails(body: string): string {
  return body.replaceAll(/(?<="value":"|-bin: )[^"\r]+/g, (text) => Buffer.from(text, "base64").toString("latin1"));
}

function withoutNews(message: string): string {
  return message
    .replaceAll(/\b(key|id|evt)_[0-9a-z]{26}\b/g, "$1")
    .replaceAll(/\b\w+_[0-9A-Za-z]{39}\b/g, "secret")
    .replaceAll(/\b\d{13}\b|"\d{4}-[^"]+Z"/g, "time");
}

/** What was asked of PostgreSQL and Redis for a call, in order, once the call has ended. */
async function backendsAsked(requestId: string | undefined): Promise<unknown[]> {
  const ended = () =>
    exporter.getFinishedSpans().find(({ attributes }) => attributes["latchkey.request_id"] === requestId);
  await expect.poll(ended, { timeout: 5_000, interval: 2 }).toBeDefined();
  const id = ended()?.spanContext().spanId;
  const asked = exporter.getFinishedSpans().filter(({ parentSpanContext }) => parentSpanContext?.spanId === id);
  return asked.map(({ attributes }) => attributes);
}

/** How often keys and workspaces were looked up outside this process, and how many events and identities there are. */
async function readCounts(): Promise<number[]> {
  const samples = parseSamples(await (await app.metrics()).metrics());
  const lookups = samples
    .filter(({ name, labels }) => name === "latchkey_lookups_total" && labels["source"] !== "memory")
    .map(({ value }) => value);
  const [rows] = await sql<{ events: number; identities: number }[]>`
    select (select count(*)::int from audit_events) as events, (select count(*)::int from identities) as identities`;
  return [...lookups, rows?.events ?? 0, rows?.identities ?? 0];
}
