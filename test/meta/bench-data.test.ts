import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { fill } from "../../bench/data/fill.js";
import { createPopulation } from "../../bench/data/population.js";
import { isId } from "../../src/ids.js";
import { hashSecret, isWellFormedSecret } from "../../src/keys/secret.js";
import { connectPostgres } from "../../src/storage/postgres/connection.js";
import { readPage, succeed } from "../support/calls.js";
import { createDatabase, openTestApp, type TestApp } from "../support/harness.js";

const numbers = { keys: 600, workspaces: 3, identities: 30 };
const population = createPopulation("test", numbers);

describe("a generated population", () => {
  it("is deterministic: the same for the same seed, different for another", () => {
    const again = createPopulation("test", numbers);
    expect([again.secret(7), again.keyId(7)]).toEqual([population.secret(7), population.keyId(7)]);
    const other = createPopulation("other", numbers);
    expect(other.secret(7).plaintext).not.toBe(population.secret(7).plaintext);
    expect(other.keyId(7)).not.toBe(population.keyId(7));
  });

  it("has unique secrets and ids in Latchkey's format, with the ids in ascending order", () => {
    const all = Array.from({ length: numbers.keys }, (_, number) => number);
    const secrets = all.map((number) => population.secret(number));
    expect(new Set(secrets.map(({ plaintext }) => plaintext)).size).toBe(numbers.keys);
    expect(secrets.every(({ plaintext }) => isWellFormedSecret(plaintext))).toBe(true);
    expect(secrets.map(({ hash }) => hash)).toEqual(secrets.map(({ plaintext }) => hashSecret(plaintext)));
    const ids = all.map(population.keyId);
    expect(ids.every((id) => isId("key", id))).toBe(true);
    expect(ids.toSorted()).toEqual(ids);
  });

  it("must be divisible evenly", () => {
    expect(() => createPopulation("test", { keys: 10, workspaces: 3 })).toThrow("multiples");
  });
});

describe("a database filled with it", () => {
  let database: Awaited<ReturnType<typeof createDatabase>>;
  let app: TestApp;
  const progress: string[] = [];

  beforeAll(async () => {
    database = await createDatabase();
    await fill(database.url, population, (table, rows) => void progress.push(`${rows} ${table}`));
    app = await openTestApp({ databaseUrl: database.url });
  });
  afterAll(async () => {
    await app.close();
    await database.drop();
  });

  it("reports its progress", () => {
    expect(progress).toEqual(["3 workspaces", "30 identities", "600 keys"]);
  });

  it("has keys that verify with their identities, for a caller of their workspace", async () => {
    for (const key of [3, 100, 599]) {
      const caller = population.secret(population.callerOf(key)).plaintext;
      const { plaintext } = population.secret(key);
      const result = await succeed(app.httpUrl, "keys.verifyKey", caller, { key: plaintext });
      const owner = { externalId: `user_${population.identityOf(key)}` };
      expect(result).toMatchObject({ code: "VALID", keyId: population.keyId(key), identity: owner });
    }
  });

  it("lists them", async () => {
    const caller = population.secret(0).plaintext;
    const { data } = await readPage<{ keyId: string }>(app.httpUrl, "keys.listKeys", caller, { limit: 3 });
    expect(data.map(({ keyId }) => keyId)).toEqual([0, 3, 6].map(population.keyId));
  });

  it("has no row with a transaction id: replicas need not read them as changes", async () => {
    const sql = connectPostgres(database.url);
    const rows = await sql`
      select (select count(*)::int from keys where changed_xid <> '0') as keys,
        (select count(*)::int from identities where changed_xid <> '0') as identities`;
    await sql.end();
    expect(rows).toMatchObject([{ keys: 0, identities: 0 }]);
  });
});
