import { readFileSync } from "node:fs";
import { HTTPClient, Unkey } from "@unkey/api";
import { expect, it } from "vitest";
import { copyCatalogue, createVerify } from "../../../examples/coming-from-unkey/migration.js";
import { openFileService } from "../../support/file-service.js";

const day = 86_400_000;

// Two services with a database each. The first takes the place of Unkey. It has no Redis: the databases of this run are
// copies of one template, so both services would take each other's cache entries for their own.
const old = await openFileService({ redis: undefined });
const here = await openFileService();
let oldCalls = 0;
const countCalls = new HTTPClient().addHook("beforeRequest", () => void oldCalls++);
const unkey = new Unkey({ serverURL: old.origin, rootKey: old.key, httpClient: countCalls });
const latchkey = new Unkey({ serverURL: here.origin, rootKey: here.key });

const oldApi = (await unkey.apis.createApi({ name: "documents" })).data.apiId;
const { apiId } = (await latchkey.apis.createApi({ name: "documents" })).data;
const verify = createVerify(unkey, latchkey, apiId);

it("the guide shows lines of the example", () => {
  const guide = readFileSync("docs/guides/coming-from-unkey.md", "utf8");
  const blocks = [...guide.matchAll(/<!-- from: (\S+) -->\n```\w+\n(.*?)```/gs)];
  expect(blocks).not.toHaveLength(0);
  for (const [, file = "", block = ""] of blocks) {
    expect(readFileSync(file, "utf8").split("\n")).toEqual(expect.arrayContaining(block.trimEnd().split("\n")));
  }
});

it("permissions, roles and identities are copied, also a second time", async () => {
  await unkey.permissions.createPermission({ name: "Read documents", slug: "documents.read" });
  await unkey.permissions.createRole({ name: "reader", description: "Reads", permissions: ["documents.read"] });
  const ratelimits = [{ name: "requests", limit: 5, duration: day, autoApply: true }];
  await unkey.identities.createIdentity({ externalId: "user_7", meta: { plan: "pro" }, ratelimits });
  for (let times = 0; times < 2; times++) await copyCatalogue(unkey, latchkey);
  expect((await latchkey.permissions.getPermission({ permission: "documents.read" })).data).toMatchObject({
    name: "Read documents",
  });
  expect((await latchkey.permissions.getRole({ role: "reader" })).data).toMatchObject({
    description: "Reads",
    permissions: [{ slug: "documents.read" }],
  });
  expect((await latchkey.identities.getIdentity({ identity: "user_7" })).data).toMatchObject({
    meta: { plan: "pro" },
    ratelimits,
  });
});

it("a key is imported with its settings at its first use, and later verified without the old service", async () => {
  const { key } = (
    await unkey.keys.createKey({
      apiId: oldApi,
      prefix: "docs",
      name: "customer 7",
      externalId: "user_7",
      meta: { plan: "pro" },
      roles: ["reader"],
      permissions: ["documents.write"],
      expires: Date.now() + day,
      credits: { remaining: 3, refill: { interval: "monthly", amount: 3, refillDay: 15 } },
      ratelimits: [{ name: "exports", limit: 1, duration: day }],
    })
  ).data;
  const permissions = "documents.read AND documents.write";
  const verified = { valid: true, name: "customer 7", roles: ["reader"], identity: { externalId: "user_7" } };
  expect(await verify({ key, permissions, ratelimits: [{ name: "exports" }] })).toMatchObject({
    ...verified,
    credits: 2,
    ratelimits: [
      { name: "exports", remaining: 0 },
      { name: "requests", remaining: 4 },
    ],
  });
  const calls = oldCalls;
  expect(await verify({ key, permissions })).toMatchObject({ ...verified, credits: 1 });
  expect(oldCalls).toBe(calls);
  expect((await unkey.keys.whoami({ key })).data.credits).toMatchObject({ remaining: 3 });
});

it("a key that the old service refuses is not imported", async () => {
  const { key } = (await unkey.keys.createKey({ apiId: oldApi, enabled: false })).data;
  expect(await verify({ key })).toMatchObject({ code: "NOT_FOUND" });
  expect(await verify({ key: "sk_unknown" })).toMatchObject({ code: "NOT_FOUND" });
  const { result } = await latchkey.apis.listKeys({ apiId });
  expect(result.data.map(({ enabled }) => enabled)).not.toContain(false);
});

it("concurrent first uses import a key once", async () => {
  const { key } = (await unkey.keys.createKey({ apiId: oldApi, name: "busy" })).data;
  const results = await Promise.all(Array.from({ length: 8 }, () => verify({ key })));
  expect(new Set(results.map(({ code }) => code))).toEqual(new Set(["VALID"]));
  expect(new Set(results.map(({ keyId }) => keyId)).size).toBe(1);
});

it("a key that is disabled here stays refused, although the old service accepts it", async () => {
  const { key } = (await unkey.keys.createKey({ apiId: oldApi })).data;
  const { keyId = "" } = await verify({ key });
  await latchkey.keys.updateKey({ keyId, enabled: false });
  expect(await verify({ key })).toMatchObject({ valid: false, code: "DISABLED" });
});
