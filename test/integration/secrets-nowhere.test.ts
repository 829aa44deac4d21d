import type postgres from "postgres";
import { afterAll, beforeAll, describe, expect, it, vi } from "vitest";
import { openSql } from "../../commands/open-sql.js";
import { errorCodes, pathOf as errorPath } from "../../src/errors.js";
import { mintSecret } from "../../src/keys/secret.js";
import { createLog } from "../../src/observe/log.js";
import { allEvents, succeed } from "../support/calls.js";
import { send, sendBytes } from "../support/clients/http-requests.js";
import { openTestApp, operatorKey, type TestApp } from "../support/harness.js";
import { readMetricsText, readSamples, total } from "../support/metric-samples.js";
import {
  headers,
  openConnectTour,
  openGrpcTour,
  openHttpTour,
  pathOf,
  requestsFor,
  rpcs,
  type TourClient,
  type TourResponse,
  type TourThings,
} from "../support/secrets-tour.js";

const logLines: string[] = [];
const log = createLog("trace", { destination: { write: (line: string) => void logLines.push(line) } });
/** Every secret that was minted or sent, those in headers included. */
const secrets = new Set([operatorKey, ...Object.values(headers)]);
/** All responses, except successful ones that contain a new secret. */
const responses: TourResponse[] = [];
const visited = new Set<string>();

let app: TestApp;
let sql: postgres.Sql;
let home: { workspaceId: string; keyId: string; key: string };

const credentialOf = (operation: string) => (operation.startsWith("workspaces.") ? operatorKey : home.key);

beforeAll(async () => {
  app = await openTestApp({ log, metricsPort: 0 });
  sql = openSql(app.databaseUrl, { max: 1, onnotice: () => {} });
  home = await succeed(app.httpUrl, "workspaces.createWorkspace", operatorKey, { name: "acme" });
  secrets.add(home.key);
  const http = openHttpTour(app);
  const grpc = openGrpcTour(app);
  for (const protocol of [http, grpc, openConnectTour(app)]) {
    await tourServed(protocol);
    await tourRefused(protocol);
  }
  // Connect returns unexpected errors like gRPC, on the HTTP port. A third tour with a broken database would take long.
  for (const protocol of [http, grpc]) await tourBroken(protocol);
  grpc.close();
}, 300_000);
afterAll(async () => {
  await sql.end();
  await app.close();
});

async function newKey(): Promise<{ keyId: string; key: string }> {
  const body = { permissions: ["documents.read"] };
  const created = await succeed<{ keyId: string; key: string }>(app.httpUrl, "keys.createKey", home.key, body);
  secrets.add(created.key);
  return created;
}

async function newThings(): Promise<TourThings> {
  const { apiId } = await succeed<{ apiId: string }>(app.httpUrl, "apis.createApi", home.key, { name: "tour" });
  const imported = mintSecret("imported").plaintext;
  secrets.add(imported);
  const spare = await succeed<{ workspaceId: string; key: string }>(
    app.httpUrl,
    "workspaces.createWorkspace",
    operatorKey,
    { name: "spare" },
  );
  secrets.add(spare.key);
  return { ...(await newKey()), apiId, imported, spareWorkspaceId: spare.workspaceId };
}

/** Records a response; if it contains a new secret, only the secret. */
function recordResponse(response: TourResponse): void {
  const mayContain = response.ok && /\.(createKey|rerollKey|createWorkspace|createRootKey)$/.test(response.operation);
  const [, newSecret] = (mayContain && /"key":\s*"([^"]+)"/.exec(response.text)) || [];
  if (newSecret !== undefined) secrets.add(newSecret);
  else responses.push(response);
}

/** Calls that succeed. */
async function tourServed(protocol: TourClient): Promise<void> {
  for (const [operation, body] of requestsFor(home.workspaceId, await newThings())) {
    const response = await protocol.call(operation, credentialOf(operation), body);
    expect(response, response.text).toMatchObject({ ok: true });
    visited.add(operation);
    recordResponse(response);
  }
}

/** Calls that are refused because of their credential, or because of a body with secrets in the wrong fields. */
async function tourRefused(protocol: TourClient): Promise<void> {
  const { key: weak } = await newKey();
  const unknown = mintSecret().plaintext;
  const sent = mintSecret("sent").plaintext;
  for (const secret of [unknown, sent]) secrets.add(secret);
  const bodies = [
    `{"key":"${sent}","name`,
    `{"key":${sent}}`,
    sent,
    `"${sent}"`,
    `["${sent}"]`,
    JSON.stringify({
      key: [sent],
      limit: sent,
      enabled: sent,
      permissions: sent,
      expires: sent,
      prefix: sent,
      reason: sent,
    }),
    JSON.stringify({ surprise: sent, cursor: sent, meta: sent, note: { sent } }),
  ];
  for (const operation of rpcs.keys()) {
    const wrong = credentialOf(operation) === operatorKey ? home.key : operatorKey;
    const calls = [
      ...[undefined, `${home.key}x`, unknown, weak].map((credential) => protocol.call(operation, credential, sent)),
      ...(operation === "workspaces.listAuditEvents" ? [] : [protocol.call(operation, wrong, sent)]),
      ...bodies.map((body) => protocol.call(operation, credentialOf(operation), body)),
    ];
    responses.push(...(await Promise.all(calls)));
  }
  for (const operation of ["keys.listKeys", "identities.listIdentities", "workspaces.listAuditEvents"]) {
    responses.push(await protocol.call(operation, credentialOf(operation), { cursor: sent }));
  }
  responses.push(await protocol.call("keys.createKey", home.key, { prefix: sent, permissions: [`${sent}!`] }));
  responses.push(await protocol.call("keys.whoami", home.key, { key: unknown }));
  responses.push(await protocol.call("keys.verifyKey", home.key, { key: `${unknown}x` }));
}

/** Calls of which most fail with an unexpected error, because a table or function of the database is missing. */
async function tourBroken(protocol: TourClient): Promise<void> {
  const tables = ["keys", "audit_events", "identities", "workspaces", "key_credits"];
  // The lease needs some of the tables. Only changes need the functions, which build the audit events.
  const functions = ["keys", "identities", "workspaces", "apis", "roles", "permissions"].map(
    (table) => `audit_snapshot(${table})`,
  );
  const parts = [
    ...tables.map((name) => [`table ${name}`, `table ${name}_away`, name]),
    ...functions.map((name) => [`function ${name}`, `function ${name.replace("(", "_away(")}`, "audit_snapshot"]),
  ];
  for (const [there, away, name] of parts) {
    const requests = requestsFor(home.workspaceId, await newThings());
    await sql.unsafe(`alter ${there} rename to ${name}_away`);
    // Several at a time: many calls wait until they fail.
    while (requests.length > 0) {
      const calls = requests
        .splice(0, 8)
        .map(([operation, body]) => protocol.call(operation, credentialOf(operation), body));
      for (const response of await Promise.all(calls)) recordResponse(response);
    }
    await sql.unsafe(`alter ${away} rename to ${name}`);
    // Changes that succeeded while a table was missing must not affect the next tour.
    await vi.waitFor(() => restore(protocol), { timeout: 10_000 });
  }
}

async function restore(protocol: TourClient): Promise<void> {
  const enabled = await protocol.call("workspaces.enableWorkspace", operatorKey, { workspaceId: home.workspaceId });
  expect(enabled).toMatchObject({ ok: true });
  for (const [operation, body] of [
    ["identities.deleteIdentity", { externalId: "user" }],
    ["permissions.deleteRole", { role: "printer" }],
    ["permissions.deletePermission", { permission: "documents.print" }],
  ] as const) {
    const { ok, text } = await protocol.call(operation, home.key, body);
    if (!ok) expect(text).toMatch(/_not_found/i);
  }
}

/** The secrets that a text contains, entirely or mostly. */
function foundIn(text: string): string[] {
  return [...secrets].filter((secret) => text.includes(secret) || text.includes(secret.slice(-24)));
}

describe("after a tour of every RPC, served, refused and failing, no secret that was created or sent", () => {
  it("is missing from the search: the tour was complete", () => {
    expect([...visited].sort()).toEqual([...rpcs.keys()].sort());
    expect(secrets.size).toBeGreaterThan(15);
    expect(responses.filter(({ text }) => /unexpected_error/i.test(text)).length).toBeGreaterThan(30);
    // Without the tables that the lease needs, calls are refused as unavailable before they can fail in another way.
    expect(responses.filter(({ text }) => /service_unavailable/i.test(text)).length).toBeGreaterThan(30);
    expect(responses.filter(({ ok }) => !ok).length).toBeGreaterThan(300);
  });

  it("is in a response, except where a new key is returned", () => {
    expect(responses.flatMap((response) => foundIn(response.text).map((secret) => ({ ...response, secret })))).toEqual(
      [],
    );
  });

  it("is in the log, at the level `trace`", async () => {
    await expect.poll(() => logLines.length, { timeout: 5_000 }).toBeGreaterThan(responses.length);
    expect(logLines.filter((line) => foundIn(line).length > 0)).toEqual([]);
  });

  it("is in the metrics", async () => {
    const calls = () => readSamples(app).then((samples) => total(samples, "latchkey_calls_total"));
    await expect.poll(calls, { timeout: 5_000 }).toBeGreaterThan(responses.length);
    expect(foundIn(await readMetricsText(app))).toEqual([]);
  });

  it("can be in the metrics: the labels of calls are taken from fixed sets", async () => {
    await send(app.httpUrl, "/made/up", { method: "GET", headers });
    await sendBytes(app.httpUrl, "MADE /up\r\n\r\n");
    const samples = (await readSamples(app)).filter(({ name }) => /^latchkey_call/.test(name));
    const values = (label: string) => [...new Set(samples.flatMap(({ labels }) => labels[label] ?? []))];
    expect(values("protocol").sort()).toEqual(["connect", "grpc", "http"]);
    expect(values("method").sort()).toEqual(expect.arrayContaining([...rpcs.keys()].map(pathOf).sort()));
    const known = new Set(["other", ...[...rpcs.keys()].map(pathOf)]);
    expect(values("method").filter((method) => !known.has(method))).toEqual([]);
    const codes = new Set(["ok", ...errorCodes.map(errorPath)]);
    expect(values("code").length).toBeGreaterThan(5);
    expect(values("code").filter((code) => !codes.has(code))).toEqual([]);
    expect(new Set(samples.flatMap(({ labels }) => Object.keys(labels)))).toEqual(
      new Set(["protocol", "method", "code", "le"]),
    );
  });

  it("is in an audit event", async () => {
    const events = await allEvents(app.httpUrl);
    expect(events.length).toBeGreaterThan(20);
    expect(events.filter((event) => foundIn(JSON.stringify(event)).length > 0)).toEqual([]);
  });

  it("is in the database", async () => {
    const tables = await sql<{ name: string }[]>`
      select table_name as name from information_schema.tables where table_schema = 'public'`;
    expect(tables.map(({ name }) => name)).toEqual(expect.arrayContaining(["keys", "audit_events"]));
    for (const { name } of tables) {
      const rows = await sql<{ row: string }[]>`select row_to_json(t)::text as row from ${sql(name)} t`;
      expect(
        rows.filter(({ row }) => foundIn(row).length > 0),
        name,
      ).toEqual([]);
    }
  });
});

describe("a secret that is sent in the wrong place is not repeated", () => {
  const sent = mintSecret("odd").plaintext;

  it.each([
    ["instead of an operator", `documents.read ${sent}`],
    ["with a stray character", `documents.read AND ${sent}!`],
    ["with a wildcard in its middle", `${sent}.*.read`],
  ])("in the response to a permission query %s", async (_where, permissions) => {
    const { ok, text } = await openHttpTour(app).call("keys.verifyKey", home.key, { key: home.key, permissions });
    expect(ok).toBe(false);
    expect(text).not.toContain(sent);
  });

  it.each([
    ["the path of an unknown route", `/v2/keys.getKey/${sent}`],
    ["the path of an unknown page", `/api-reference/errors-v2/service/${sent}`],
    ["the path of an unknown RPC", `/latchkey.v1.KeysService/${sent}`],
    ["the query", `/v2/keys.whoami?key=${sent}`],
  ])("in the log or the response of a call with it in %s", async (_where, path) => {
    const { status, headers, text } = await send(app.httpUrl, path, { method: "GET", key: home.key });
    expect(status).toBeGreaterThanOrEqual(400);
    const lines = () => logLines.filter((line) => line.includes(String(headers["x-request-id"])));
    await expect.poll(lines, { timeout: 5_000 }).not.toEqual([]);
    expect.soft(lines().join("")).not.toContain(sent);
    expect.soft(text).not.toContain(sent);
  });

  it.each([
    ["the request line", `GET /${sent} HTTP/9.9\r\nhost: a\r\n\r\n`],
    ["the method", `${sent} /livez HTTP/1.1\r\nhost: a\r\n\r\n`],
    ["a malformed header", `GET /livez HTTP/1.1\r\nhost: a\r\nauthorization Bearer ${sent}\r\n\r\n`],
    ["a tunnel", `CONNECT ${sent}:443 HTTP/1.1\r\nhost: a\r\n\r\n`],
  ])("in the log, the metrics or the response of malformed HTTP with it in %s", async (_where, bytes) => {
    const { status, text } = await sendBytes(app.httpUrl, bytes);
    expect(status).toBeGreaterThanOrEqual(400);
    const { requestId } = JSON.parse(text).meta;
    const lines = () => logLines.filter((line) => line.includes(requestId));
    await expect.poll(lines, { timeout: 5_000 }).not.toEqual([]);
    expect.soft(lines().join("")).not.toContain(sent);
    expect.soft(await readMetricsText(app)).not.toContain(sent);
    expect.soft(text).not.toContain(sent);
  });
});
