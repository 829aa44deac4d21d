import type postgres from "postgres";
import { afterAll, beforeAll, describe, expect } from "vitest";
import { openSql } from "../../commands/open-sql.js";
import type { UsageResponse } from "../support/responses.js";
import { openContract } from "./cases.js";

const contract = openContract();
const { everyProtocol } = contract;

const hourMs = 3_600_000;

let sql: postgres.Sql;
beforeAll(async () => {
  sql = openSql(contract.app.databaseUrl, { max: 1, onnotice: () => {} });
  // To the beginning of an hour, so that the verifications of a case are in one hour.
  await contract.clock.advance(hourMs + 60_000 - (contract.clock.now() % hourMs));
});
afterAll(() => sql.end());

/** Waits until this many verifications of a key or an identity are stored. They are stored in batches. */
async function stored(resourceId: string, total: number): Promise<void> {
  const read = async () => {
    const [row] = await sql<{ total: number }[]>`
      select coalesce(sum(valid + rate_limited + usage_exceeded + insufficient_permissions + disabled + expired), 0)::float8
        as total
      from verification_counts where resource_id = ${resourceId} and tag = ''`;
    return row?.total;
  };
  await expect.poll(read, { timeout: 15_000 }).toBe(total);
}

/** Stores verifications of a key or an identity as VALID, in the past. */
async function store(workspaceId: string, resourceId: string, hour: string | Date, valid: number, tag = "") {
  await sql`
    insert into verification_counts (resource_id, tag, hour, workspace_id, valid, rate_limited, usage_exceeded,
      insufficient_permissions, disabled, expired)
    values (${resourceId}, ${tag}, date_trunc('hour', ${hour}::timestamptz), ${workspaceId}, ${valid}, 0, 0, 0, 0, 0)`;
}

/** The counts of all parts together. */
function sumOf(usage: readonly UsageResponse[]) {
  const names = ["total", "valid", "insufficientPermissions", "disabled", "expired"] as const;
  return Object.fromEntries(names.map((name) => [name, usage.reduce((sum, part) => sum + part[name], 0)]));
}

const at = (time: string) => Date.parse(time);
const parts = (usage: readonly UsageResponse[]) =>
  usage.map(({ time, total }) => [new Date(time).toISOString(), total]);

describe("the usage of a key", () => {
  everyProtocol("counts verifications by result", async ({ ok, home }) => {
    const { keyId, key } = await ok("createKey", home.key, { permissions: ["a"] });
    for (const permissions of ["a", "a", "b"]) await ok("verifyKey", home.key, { key, permissions });
    await ok("updateKey", home.key, { keyId, enabled: false });
    for (let call = 0; call < 4; call++) await ok("verifyKey", home.key, { key });
    await stored(keyId, 7);
    const usage = await ok("getKeyUsage", home.key, { keyId });
    expect(sumOf(usage)).toEqual({ total: 7, valid: 2, insufficientPermissions: 1, disabled: 4, expired: 0 });
    expect(usage[0]).toMatchObject({ rateLimited: 0, usageExceeded: 0 });
  });

  everyProtocol("is empty for a key that was never verified", async ({ ok, home }) => {
    const { keyId } = await ok("createKey", home.key);
    expect(await ok("getKeyUsage", home.key, { keyId })).toEqual([]);
  });

  everyProtocol("has parts of hours, days or months in UTC, and only those with verifications", async (scene) => {
    const { workspaceId, key } = scene.home;
    const { keyId } = await scene.ok("createKey", key);
    const counts = {
      "2024-01-31T23:00Z": 1,
      "2024-02-01T00:00Z": 2,
      "2024-02-29T23:00Z": 4,
      "2024-03-01T00:00Z": 8,
      "2024-03-31T01:00Z": 16, // clocks are set forward in much of Europe
      "2024-03-31T22:00Z": 32, // the first of April there
    };
    for (const [hour, valid] of Object.entries(counts)) await store(workspaceId, keyId, hour, valid);
    const usage = async (granularity: string, from: string, to: string) => {
      const period = { granularity, from: at(from), to: at(to) };
      return parts(await scene.ok("getKeyUsage", key, { keyId, period }));
    };
    expect(await usage("month", "2024-01-15T00:00Z", "2024-04-01T00:00Z")).toEqual([
      ["2024-01-01T00:00:00.000Z", 1],
      ["2024-02-01T00:00:00.000Z", 6],
      ["2024-03-01T00:00:00.000Z", 56],
    ]);
    expect(await usage("day", "2024-02-29T12:00Z", "2024-04-01T00:00Z")).toEqual([
      ["2024-02-29T00:00:00.000Z", 4],
      ["2024-03-01T00:00:00.000Z", 8],
      ["2024-03-31T00:00:00.000Z", 48],
    ]);
    expect(await usage("hour", "2024-01-31T23:59Z", "2024-02-01T00:00Z")).toEqual([["2024-01-31T23:00:00.000Z", 1]]);
    expect(await usage("hour", "2024-01-31T23:59Z", "2024-02-01T00:01Z")).toEqual([
      ["2024-01-31T23:00:00.000Z", 1],
      ["2024-02-01T00:00:00.000Z", 2],
    ]);
  });

  everyProtocol("is that of the last 24 hours, by hour, if no period is given", async ({ ok, home }) => {
    const { keyId } = await ok("createKey", home.key);
    const ago = (hours: number) => new Date(contract.clock.now() - hours * hourMs);
    await store(home.workspaceId, keyId, ago(26), 1);
    await store(home.workspaceId, keyId, ago(23), 2);
    await store(home.workspaceId, keyId, ago(1), 4);
    expect((await ok("getKeyUsage", home.key, { keyId })).map(({ total }) => total)).toEqual([2, 4]);
  });

  everyProtocol("can be read for one tag; the total includes all verifications once", async ({ ok, home }) => {
    const { keyId, key } = await ok("createKey", home.key);
    await ok("verifyKey", home.key, { key, tags: ["path=/a", "region=eu"] });
    await ok("verifyKey", home.key, { key, tags: ["path=/a"] });
    await ok("verifyKey", home.key, { key });
    await stored(keyId, 3);
    const total = async (request: object) => sumOf(await ok("getKeyUsage", home.key, { keyId, ...request }))["total"];
    expect(await total({ tag: "path=/a" })).toBe(2);
    expect(await total({ tag: "region=eu" })).toBe(1);
    expect(await total({ tag: "region=us" })).toBe(0);
    expect(await total({})).toBe(3);
  });

  everyProtocol("is not found for keys that do not exist, are deleted, or are another workspace's", async (scene) => {
    const other = await scene.newWorkspace();
    const { keyId } = await scene.ok("createKey", scene.home.key);
    await scene.ok("deleteKey", scene.home.key, { keyId });
    for (const unknown of ["key_00000000000000000000000000", keyId, other.keyId]) {
      await scene.refused("data/key_not_found", "getKeyUsage", scene.home.key, { keyId: unknown });
    }
  });
});

describe("the usage of an identity", () => {
  everyProtocol("counts the verifications of all its keys, also of deleted ones", async ({ ok, home }) => {
    const { identityId } = await ok("createIdentity", home.key, { externalId: "user_1" });
    const first = await ok("createKey", home.key, { identityId });
    const second = await ok("createKey", home.key, { externalId: "user_1" });
    const unowned = await ok("createKey", home.key);
    for (const { key } of [first, second, second, unowned]) {
      await ok("verifyKey", home.key, { key, tags: ["path=/a"] });
    }
    await stored(identityId, 3);
    await ok("deleteKey", home.key, { keyId: second.keyId });
    for (const reference of [{ identityId }, { externalId: "user_1" }, { identity: "user_1" }]) {
      expect(sumOf(await ok("getIdentityUsage", home.key, reference))).toMatchObject({ total: 3, valid: 3 });
      const tagged = { ...reference, tag: "path=/a" };
      expect(sumOf(await ok("getIdentityUsage", home.key, tagged))).toMatchObject({ total: 3 });
    }
  });

  everyProtocol("counts a verification for the identity that the key had then", async ({ ok, home }) => {
    const { keyId, key } = await ok("createKey", home.key, { externalId: "user_1" });
    await ok("verifyKey", home.key, { key });
    await ok("updateKey", home.key, { keyId, externalId: "user_2" });
    await ok("verifyKey", home.key, { key });
    await ok("verifyKey", home.key, { key });
    await stored(keyId, 3);
    const totalOf = async (externalId: string) =>
      sumOf(await ok("getIdentityUsage", home.key, { externalId }))["total"];
    expect([await totalOf("user_1"), await totalOf("user_2")]).toEqual([1, 2]);
  });

  everyProtocol("has the parts of the requested period", async ({ ok, home }) => {
    const { identityId } = await ok("createIdentity", home.key, { externalId: "user_1" });
    await store(home.workspaceId, identityId, "2026-01-31T23:00Z", 1);
    await store(home.workspaceId, identityId, "2026-02-01T00:00Z", 2);
    const period = { granularity: "month", from: at("2026-01-01T00:00Z"), to: at("2026-03-01T00:00Z") };
    expect(parts(await ok("getIdentityUsage", home.key, { identityId, period }))).toEqual([
      ["2026-01-01T00:00:00.000Z", 1],
      ["2026-02-01T00:00:00.000Z", 2],
    ]);
  });

  everyProtocol(
    "is not found for identities that do not exist, are deleted, or are another workspace's",
    async (scene) => {
      const other = await scene.newWorkspace();
      const foreign = await scene.ok("createIdentity", other.key, { externalId: "user_2" });
      const { identityId } = await scene.ok("createIdentity", scene.home.key, { externalId: "user_1" });
      await scene.ok("deleteIdentity", scene.home.key, { identityId });
      for (const reference of [{ identityId }, { externalId: "user_1" }, foreign, { identity: "user_2" }]) {
        await scene.refused("data/identity_not_found", "getIdentityUsage", scene.home.key, reference);
      }
    },
  );
});

describe("an invalid period is refused, and the error names it", () => {
  const from = at("2026-01-01T00:00Z");
  const invalid: [name: string, period: object, location: RegExp][] = [
    ["an end that is not later than the beginning", { granularity: "hour", from, to: from }, /^period$/],
    ["more than 1,000 hours", { granularity: "hour", from, to: from + 1_001 * hourMs }, /^period$/],
    ["more than 1,000 days", { granularity: "day", from, to: from + 1_001 * 86_400_000 }, /^period$/],
    ["an unknown granularity", { granularity: "week", from, to: from + 1 }, /^period\.granularity$/],
    ["no granularity", { from, to: from + 1 }, /^period\.granularity$/],
    ["no end", { granularity: "hour", from }, /^period(\.to)?$/],
    ["no beginning", { granularity: "hour", to: from }, /^period(\.from)?$/],
  ];
  for (const [what, period, location] of invalid) {
    everyProtocol(`${what}`, async ({ refused, ok, home }) => {
      const { identityId } = await ok("createIdentity", home.key, { externalId: "user_1" });
      const requests = [
        ["getKeyUsage", { keyId: home.keyId, period }],
        ["getIdentityUsage", { identityId, period }],
      ] as const;
      for (const [operation, request] of requests) {
        const { fields } = await refused("application/invalid_input", operation, home.key, request);
        expect(fields?.map((field) => field.location)).toContainEqual(expect.stringMatching(location));
      }
    });
  }
});
