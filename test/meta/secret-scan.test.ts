import { copyFileSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Redis } from "ioredis";
import { afterAll, beforeAll, describe, expect, inject, it } from "vitest";
import { openSql } from "../../commands/open-sql.js";
import { mintSecret } from "../../src/keys/secret.js";
import type { Evidence } from "../support/artifacts.js";
import { succeed } from "../support/calls.js";
import { createWorkspace, post } from "../support/clients/http-requests.js";
import { createDatabase, openTestApp, operatorKey } from "../support/harness.js";
import { type Findings, type Remains, searchRemains, secretsIn } from "../support/secret-scan.js";

let evidence: string;
beforeAll(() => {
  evidence = mkdtempSync(join(tmpdir(), "latchkey-evidence-"));
});
afterAll(() => rmSync(evidence, { recursive: true, force: true }));

function search(remains: Partial<Remains> = {}): Promise<Findings> {
  return searchRemains({ evidence, databaseUrls: [], redisUrl: undefined, ...remains });
}

describe("secrets are recognized by their format", () => {
  const { plaintext } = mintSecret();
  const { plaintext: live } = mintSecret("sk_live");

  it.each([
    ["alone", plaintext],
    ["in JSON", `{"name":"${plaintext}"}`],
    ["with a prefix of its own", `{"name":"${live}"}`],
    ["after other letters", `of_the_name_${plaintext}`],
    ["before other letters", `${plaintext}and more`],
    ["in a header", `authorization: Bearer ${live}`],
  ])("%s", (_where, text) => {
    expect(secretsIn(text)).toHaveLength(1);
  });

  it("the operator's credential is recognized by its value", () => {
    expect(secretsIn(`Bearer ${operatorKey}`)).toEqual([operatorKey]);
  });

  it("strings that only resemble a secret are not reported", () => {
    const last = plaintext.endsWith("A") ? "B" : "A";
    expect(secretsIn(plaintext.slice(0, -1) + last)).toEqual([]);
    expect(secretsIn(`key_01m7fqggj3fw09753skw6k0w2a ${plaintext.slice(0, 7)} ${"a".repeat(64)}`)).toEqual([]);
  });
});

describe("the secret scan at the end of the run", () => {
  const { plaintext } = mintSecret();

  it("finds a secret in recorded output, and reports the test and the line", async () => {
    const recorded: Evidence[] = [
      { kind: "log lines", from: "test/one.test.ts", count: 2, text: `{"msg":"well"}\n{"msg":"${plaintext}"}` },
      { kind: "refusals", from: "test/other.test.ts", count: 3, text: "a\nb\nc" },
    ];
    writeFileSync(join(evidence, "1.jsonl"), recorded.map((batch) => `${JSON.stringify(batch)}\n`).join(""));
    const { searched, leaks } = await search();
    expect(leaks).toEqual([`log lines of test/one.test.ts: {"msg":"${plaintext}"}`]);
    expect([...searched]).toEqual([
      ["log lines", 2],
      ["refusals", 3],
    ]);
    rmSync(join(evidence, "1.jsonl"));
  });

  it.each(["text", "json", "bytea", "text[]"])("finds a secret in a column of %s", async (type) => {
    const database = await createDatabase();
    const sql = openSql(database.url, { max: 1 });
    const value = { text: plaintext, json: `{"a":"${plaintext}"}`, bytea: plaintext, "text[]": `{${plaintext}}` }[type];
    await sql.unsafe(`create table planted (it ${type}); insert into planted values ('${value}'), (null)`);
    const { searched, leaks } = await search({ databaseUrls: [database.url] });
    // A secret found when the database is dropped would fail the run.
    await sql`drop table planted`;
    await sql.end();
    await database.drop();
    expect(searched.get("rows")).toBe(2);
    expect(leaks).toEqual([expect.stringContaining(plaintext)]);
  });

  it.each(["name", "value"])("finds a secret in the %s of a Redis entry", async (part) => {
    const redis = new Redis(inject("redisUrl"));
    const name = part === "name" ? `planted:${plaintext}` : "planted";
    await redis.set(name, part === "value" ? plaintext : "");
    const { leaks } = await search({ redisUrl: inject("redisUrl") });
    await redis.del(name);
    redis.disconnect();
    expect(leaks).toEqual([expect.stringContaining(plaintext)]);
  });

  it("covers every kind of output of an application", async () => {
    const app = await openTestApp();
    const { key } = await createWorkspace(app.httpUrl);
    await succeed(app.httpUrl, "keys.listKeys", key, {});
    await post(app.httpUrl, "/v2/keys.getKey", key, { keyId: "none" });
    await app.close();
    // Other processes are writing their files.
    copyFileSync(join(inject("evidence"), `${process.pid}.jsonl`), join(evidence, "own.jsonl"));
    const { searched, leaks } = await search({ redisUrl: inject("redisUrl") });
    expect(leaks).toEqual([]);
    expect([...searched.keys()]).toEqual(
      expect.arrayContaining(["log lines", "refusals", "metrics pages", "rows", "Redis entries"]),
    );
  });
});
