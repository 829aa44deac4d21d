import { createHash } from "node:crypto";
import { pino } from "pino";
import type postgres from "postgres";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { openSql } from "../../../commands/open-sql.js";
import {
  type Answer,
  ask,
  createWorkspace,
  expectFailure,
  expectSuccess,
} from "../../support/clients/http-requests.js";
import { openTestApp, operatorKey, type TestApp } from "../../support/harness.js";

const day = 86_400_000;
const idempotencyKey = "the-key-that-the-caller-chose";
const written: string[] = [];

let app: TestApp;
let sql: postgres.Sql;
let key: string;
beforeAll(async () => {
  const log = pino({ level: "trace", base: null }, { write: (line: string) => void written.push(line) });
  app = await openTestApp({ log });
  sql = openSql(app.databaseUrl, { max: 1 });
  ({ key } = await createWorkspace(app.httpUrl));
});
afterAll(async () => {
  await sql.end();
  await app.close();
});

function call(operation: string, credential: string, body: object, chosen = idempotencyKey): Promise<Answer> {
  return ask(app.httpUrl, `/v2/${operation}`, {
    key: credential,
    headers: { "content-type": "application/json", "idempotency-key": chosen },
    body: JSON.stringify(body),
  });
}

async function countKept(): Promise<number> {
  const [row] = await sql<{ count: number }[]>`select count(*)::int from idempotency_records`;
  return row?.count ?? Number.NaN;
}

describe("of the answers that are kept, neither the database nor the log tells", () => {
  const secrets = new Set<string>();
  beforeAll(async () => {
    const workspace = await call("workspaces.createWorkspace", operatorKey, { name: "Acme" });
    const made = await call("keys.createKey", key, { name: "ci" });
    for (const answer of [workspace, made]) secrets.add((expectSuccess(answer) as { key: string }).key);
    expectFailure(await call("keys.createKey", key, { name: "other" }), 409, "data/idempotency_conflict");
    // What fails on our side is told to the log with its cause.
    await sql`alter table idempotency_records rename to idempotency_records_away`;
    expectFailure(await call("keys.createKey", key, { name: "ci" }), 500, "application/unexpected_error");
    await sql`alter table idempotency_records_away rename to idempotency_records`;
    for (const secret of [idempotencyKey, key, operatorKey]) secrets.add(secret);
  });

  /** The secrets that a text holds: as they are, or as anybody could compute them. */
  function foundIn(text: string): string[] {
    const digest = (secret: string) => createHash("sha256").update(secret);
    return [...secrets].filter((secret) =>
      [secret, Buffer.from(secret).toString("hex"), digest(secret).digest("hex")].some((form) => text.includes(form)),
    );
  }

  test("any secret, or which key the caller chose", async () => {
    const rows = await sql<{ row: string }[]>`select row_to_json(kept)::text as row from idempotency_records kept`;
    expect(rows).toHaveLength(2);
    expect(rows.flatMap(({ row }) => foundIn(row))).toEqual([]);
    expect(foundIn(JSON.stringify({ key, sealed: Buffer.from(idempotencyKey).toString("hex") }))).toHaveLength(2);
    await expect.poll(() => written.filter((line) => line.includes("unexpected_error"))).toHaveLength(1);
    expect(written.flatMap(foundIn)).toEqual([]);
  });

  const same = { externalId: "user_1" };

  test("whether two callers chose the same key, or asked for the same", async () => {
    const { key: other } = await createWorkspace(app.httpUrl);
    for (const caller of [key, other]) expectSuccess(await call("identities.createIdentity", caller, same, "same"));
    const rows = await sql<{ id: Buffer; sealed: Buffer }[]>`
      select id, encrypted_response as sealed from idempotency_records`;
    const columns = rows.flatMap(({ id, sealed }) => [id.toString("hex"), sealed.toString("hex")]);
    expect(new Set(columns).size).toBe(2 * rows.length);
  });

  test("an answer in the place of another: it is refused", async () => {
    await sql`delete from idempotency_records`;
    for (const chosen of ["one", "two"]) expectSuccess(await call("keys.createKey", key, {}, chosen));
    await sql`
      update idempotency_records set encrypted_response = other.encrypted_response
      from idempotency_records other where idempotency_records.id <> other.id`;
    expectFailure(await call("keys.createKey", key, {}, "two"), 500, "application/unexpected_error");
  });
});

test("answers that have expired are removed by later calls, a few at a time", async () => {
  const names = Array.from({ length: 15 }, (_, index) => `expiring ${index}`);
  for (const name of names) expectSuccess(await call("keys.createKey", key, {}, name));
  const before = await countKept();
  expect(before).toBeGreaterThanOrEqual(15);
  await app.advance(day);
  expectSuccess(await call("keys.createKey", key, {}, "later"));
  expect(await countKept()).toBe(before - 10 + 1);
  for (const name of names) expectSuccess(await call("keys.createKey", key, {}, name));
  expect(await countKept()).toBe(names.length + 1);
});

test("a refused create is looked for once more only if another may have made what stands in its way", async () => {
  await sql`create sequence looks`;
  await sql`create function count_look() returns trigger language plpgsql as
    $$ begin perform nextval('looks'); return null; end $$`;
  // Each look removes what has expired, be it nothing.
  await sql`create trigger count_look before delete on idempotency_records for each statement execute function count_look()`;
  async function looksOf(refuse: () => Promise<Answer>, status: number, code: string): Promise<number> {
    await sql`alter sequence looks restart`;
    expectFailure(await refuse(), status, code);
    const [row] = await sql<{ next: number }[]>`select nextval('looks')::int as next`;
    return (row?.next ?? Number.NaN) - 1;
  }
  const twice = { externalId: "made_twice" };
  expectSuccess(await call("identities.createIdentity", key, twice, "first"));
  const exists = "data/identity_already_exists";
  expect(await looksOf(() => call("identities.createIdentity", key, twice, "second"), 409, exists)).toBe(2);
  const invalid = "application/invalid_input";
  expect(await looksOf(() => call("identities.createIdentity", key, {}, "third"), 400, invalid)).toBe(1);
});
