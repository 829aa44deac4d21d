import { createHash } from "node:crypto";
import { beforeAll, describe, expect, test } from "vitest";
import { createLog } from "../../../src/observe/log.js";
import {
  createWorkspace,
  expectError,
  expectSuccess,
  type HttpResponse,
  send,
} from "../../support/clients/http-requests.js";
import { openFileService, openFileSql } from "../../support/file-service.js";
import { operatorKey } from "../../support/harness.js";

const day = 86_400_000;
const idempotencyKey = "the-key-that-the-caller-chose";
const logLines: string[] = [];

const log = createLog("trace", { destination: { write: (line: string) => void logLines.push(line) } });
const { app, key } = await openFileService({ log });
const sql = openFileSql(app.databaseUrl);

function call(operation: string, credential: string, body: object, chosen = idempotencyKey): Promise<HttpResponse> {
  return send(app.httpUrl, `/v2/${operation}`, {
    key: credential,
    headers: { "content-type": "application/json", "idempotency-key": chosen },
    body: JSON.stringify(body),
  });
}

async function countRecords(): Promise<number> {
  const [row] = await sql<{ count: number }[]>`select count(*)::int from idempotency_records`;
  return row?.count ?? Number.NaN;
}

describe("idempotency records: the database and the log do not reveal", () => {
  const secrets = new Set<string>();
  beforeAll(async () => {
    const workspace = await call("workspaces.createWorkspace", operatorKey, { name: "Acme" });
    const created = await call("keys.createKey", key, { name: "ci" });
    for (const response of [workspace, created]) secrets.add((expectSuccess(response) as { key: string }).key);
    expectError(await call("keys.createKey", key, { name: "other" }), 409, "data/idempotency_conflict");
    // Unexpected errors are logged with their cause.
    await sql`alter table idempotency_records rename to idempotency_records_away`;
    expectError(await call("keys.createKey", key, { name: "ci" }), 500, "application/unexpected_error");
    await sql`alter table idempotency_records_away rename to idempotency_records`;
    for (const secret of [idempotencyKey, key, operatorKey]) secrets.add(secret);
  });

  /** The secrets that a text contains: in plaintext, or in an encoding or hash that anybody could compute. */
  function foundIn(text: string): string[] {
    const digest = (secret: string) => createHash("sha256").update(secret);
    return [...secrets].filter((secret) =>
      [secret, Buffer.from(secret).toString("hex"), digest(secret).digest("hex")].some((form) => text.includes(form)),
    );
  }

  test("secrets, or the idempotency key of the caller", async () => {
    const rows = await sql<{ row: string }[]>`select row_to_json(kept)::text as row from idempotency_records kept`;
    expect(rows).toHaveLength(2);
    expect(rows.flatMap(({ row }) => foundIn(row))).toEqual([]);
    expect(foundIn(JSON.stringify({ key, encrypted: Buffer.from(idempotencyKey).toString("hex") }))).toHaveLength(2);
    await expect.poll(() => logLines.filter((line) => line.includes("unexpected_error"))).toHaveLength(1);
    expect(logLines.flatMap(foundIn)).toEqual([]);
  });

  const same = { externalId: "user_1" };

  test("whether two callers chose the same idempotency key, or sent the same request", async () => {
    const { key: other } = await createWorkspace(app.httpUrl);
    for (const caller of [key, other]) expectSuccess(await call("identities.createIdentity", caller, same, "same"));
    const rows = await sql<{ id: Buffer; sealed: Buffer }[]>`
      select id, encrypted_response as sealed from idempotency_records`;
    const columns = rows.flatMap(({ id, sealed }) => [id.toString("hex"), sealed.toString("hex")]);
    expect(new Set(columns).size).toBe(2 * rows.length);
  });

  test("a response that was moved to another record: it is refused", async () => {
    await sql`delete from idempotency_records`;
    for (const chosen of ["one", "two"]) expectSuccess(await call("keys.createKey", key, {}, chosen));
    await sql`
      update idempotency_records set encrypted_response = other.encrypted_response
      from idempotency_records other where idempotency_records.id <> other.id`;
    expectError(await call("keys.createKey", key, {}, "two"), 500, "application/unexpected_error");
  });
});

test("expired idempotency records are removed by later calls, a few at a time", async () => {
  const names = Array.from({ length: 15 }, (_, index) => `expiring ${index}`);
  for (const name of names) expectSuccess(await call("keys.createKey", key, {}, name));
  const before = await countRecords();
  expect(before).toBeGreaterThanOrEqual(15);
  await app.advance(day);
  expectSuccess(await call("keys.createKey", key, {}, "later"));
  expect(await countRecords()).toBe(before - 10 + 1);
  for (const name of names) expectSuccess(await call("keys.createKey", key, {}, name));
  expect(await countRecords()).toBe(names.length + 1);
});

test("a failed create looks up its record again only if a concurrent call may have caused the error", async () => {
  await sql`create sequence looks`;
  await sql`create function count_look() returns trigger language plpgsql as
    $$ begin perform nextval('looks'); return null; end $$`;
  // Each lookup executes a delete of expired records, even if there are none.
  await sql`create trigger count_look before delete on idempotency_records for each statement execute function count_look()`;
  async function lookupsOf(refuse: () => Promise<HttpResponse>, status: number, code: string): Promise<number> {
    await sql`alter sequence looks restart`;
    expectError(await refuse(), status, code);
    const [row] = await sql<{ next: number }[]>`select nextval('looks')::int as next`;
    return (row?.next ?? Number.NaN) - 1;
  }
  const twice = { externalId: "made_twice" };
  expectSuccess(await call("identities.createIdentity", key, twice, "first"));
  const exists = "data/identity_already_exists";
  expect(await lookupsOf(() => call("identities.createIdentity", key, twice, "second"), 409, exists)).toBe(2);
  const invalid = "application/invalid_input";
  expect(await lookupsOf(() => call("identities.createIdentity", key, {}, "third"), 400, invalid)).toBe(1);
});
