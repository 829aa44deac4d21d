import { afterAll, beforeAll, describe, expect, it } from "vitest";
import type { Verifier, VerifyOptions, VerifyResult } from "../../../src/verifier/verifier.js";
import { redisInUse } from "../../support/clients/verify-calls.js";
import { openScene, openTestVerifier, type Scene, verifyLocally } from "../../support/verifier-scene.js";

let scene: Scene;
beforeAll(async () => {
  // Verifiers use the first replica. The changes are made on the second.
  scene = await openScene(2);
  for (const app of scene.apps) await redisInUse(app); // until then, each replica counts rate limits separately
});
afterAll(() => scene.close());

/** A window that does not end during a test. */
const requests = { name: "requests", limit: 7, duration: 3_600_000, autoApply: true };

/** Verifies many times, through several verifiers at once. */
async function verifyMany(
  verifiers: readonly Verifier[],
  secret: string,
  times: number,
  options?: VerifyOptions,
): Promise<VerifyResult[]> {
  const calls = Array.from({ length: times }, async (_, call) =>
    (verifiers[call % verifiers.length] as Verifier).verify(secret, options),
  );
  return Promise.all(calls);
}

const countOf = (results: readonly VerifyResult[], code: string) =>
  results.filter((result) => result.code === code).length;

/** Two verifiers, each at its own replica. */
async function openVerifiers(): Promise<Verifier[]> {
  const addresses = scene.apps.map(({ grpcAddress }) => `http://${grpcAddress}`);
  return Promise.all(addresses.map((address) => openTestVerifier(scene, { address })));
}

describe("a rate limit that applies automatically admits exactly its limit", () => {
  it("of a key, over verifiers at several replicas", async () => {
    const verifiers = await openVerifiers();
    const { key, keyId } = await scene.createKey({ name: "limited", ratelimits: [requests] });
    const results = await verifyMany(verifiers, key, 30);
    expect(countOf(results, "VALID")).toBe(7);
    expect(countOf(results, "RATE_LIMITED")).toBe(23);
    const refused = results.find(({ valid }) => !valid);
    expect(refused).toMatchObject({ keyId, name: "limited", permissions: [], roles: [] });
    expect(refused?.ratelimits).toEqual([
      {
        id: expect.stringMatching(/^rl_/),
        ...requests,
        exceeded: true,
        remaining: 0,
        reset: expect.any(Date),
        perProcess: false,
      },
    ]);
  });

  it("of an identity, shared by its keys", async () => {
    const verifiers = await openVerifiers();
    await scene.call("identities.createIdentity", { externalId: "shared", ratelimits: [requests] });
    const keys = [await scene.createKey({ externalId: "shared" }), await scene.createKey({ externalId: "shared" })];
    const results = (await Promise.all(keys.map(({ key }) => verifyMany(verifiers, key, 10)))).flat();
    expect([countOf(results, "VALID"), countOf(results, "RATE_LIMITED")]).toEqual([7, 13]);
  });
});

it("of concurrent verifications of a key with credits, exactly as many are valid as there are credits", async () => {
  const verifiers = await openVerifiers();
  const { key } = await scene.createKey({ credits: { remaining: 25 } });
  const results = await verifyMany(verifiers, key, 40);
  expect([countOf(results, "VALID"), countOf(results, "USAGE_EXCEEDED")]).toEqual([25, 15]);
  const left = results.filter(({ valid }) => valid).map(({ credits }) => credits);
  expect(left.sort((one, other) => Number(one) - Number(other))).toEqual(Array.from({ length: 25 }, (_, n) => n));
  expect(results.find(({ code }) => code === "USAGE_EXCEEDED")).toMatchObject({ credits: 0 });
});

describe("a change holds from the moment at which it has returned", () => {
  it("a key that was verified locally is limited, and local again without its limit", async () => {
    const [verifier] = (await openVerifiers()) as [Verifier];
    const { key, keyId } = await scene.createKey();
    await verifyLocally(verifier, key);
    await scene.call("keys.updateKey", { keyId, ratelimits: [{ ...requests, limit: 3 }] });
    const { local } = verifier.stats;
    expect(countOf(await verifyMany([verifier], key, 10), "VALID")).toBe(3);
    expect(verifier.stats.local).toBe(local);
    await scene.call("keys.updateKey", { keyId, ratelimits: [] });
    expect(countOf(await verifyMany([verifier], key, 10), "VALID")).toBe(10);
    expect(await verifyLocally(verifier, key)).toMatchObject({ code: "VALID" });
  });

  it("so is a key whose identity gets a limit", async () => {
    const [verifier] = (await openVerifiers()) as [Verifier];
    const { key } = await scene.createKey({ externalId: "later limited" });
    await verifyLocally(verifier, key);
    const ratelimits = [{ ...requests, limit: 3 }];
    await scene.call("identities.updateIdentity", { externalId: "later limited", ratelimits });
    expect(countOf(await verifyMany([verifier], key, 10), "VALID")).toBe(3);
  });
});

it("what a state refuses is refused locally, and counts against no limit", async () => {
  const [verifier] = (await openVerifiers()) as [Verifier];
  const { key, keyId } = await scene.createKey({ permissions: ["a"], credits: { remaining: 5 } });
  expect(await verifyLocally(verifier, key, "b")).toMatchObject({ code: "INSUFFICIENT_PERMISSIONS", keyId });
  expect(await verifier.verify(key)).toMatchObject({ valid: true, credits: 4 });
  await scene.call("keys.updateKey", { keyId, enabled: false });
  expect(await verifyLocally(verifier, key)).toMatchObject({ code: "DISABLED", keyId });
  await scene.call("keys.updateKey", { keyId, enabled: true });
  expect(await verifier.verify(key)).toMatchObject({ valid: true, credits: 3 });
});

describe("the options of a verification", () => {
  it("with rate limits or credits ask the service, also for a cached key", async () => {
    const [verifier] = (await openVerifiers()) as [Verifier];
    const { key } = await scene.createKey();
    await verifyLocally(verifier, key);
    const { local } = verifier.stats;
    const named = { name: "exports", limit: 5, duration: 60_000, cost: 2 };
    const results = [];
    for (let call = 0; call < 3; call++) results.push(await verifier.verify(key, { ratelimits: [named] }));
    expect(results.map(({ code, ratelimits }) => [code, ratelimits?.[0]?.remaining])).toEqual([
      ["VALID", 3],
      ["VALID", 1],
      ["RATE_LIMITED", 1],
    ]);
    expect(await verifier.verify(key, { credits: { cost: 3 } })).toMatchObject({ valid: true });
    expect(verifier.stats.local).toBe(local);
  });

  it("spend the credits that they name", async () => {
    const [verifier] = (await openVerifiers()) as [Verifier];
    const { key } = await scene.createKey({ credits: { remaining: 10 } });
    expect(await verifier.verify(key, { credits: { cost: 4 } })).toMatchObject({ valid: true, credits: 6 });
    expect(await verifier.verify(key, { credits: { cost: 7 } })).toMatchObject({ code: "USAGE_EXCEEDED", credits: 6 });
    expect(await verifier.verify(key, { credits: { cost: 0 } })).toMatchObject({ valid: true, credits: 6 });
  });

  it("that are invalid are refused, and nothing is counted", async () => {
    const [verifier] = (await openVerifiers()) as [Verifier];
    const { key } = await scene.createKey({ credits: { remaining: 10 } });
    const invalid: VerifyOptions[] = [
      { credits: { cost: -1 } },
      { ratelimits: [{ name: "unknown" }] },
      { ratelimits: [{ name: "a", limit: 0, duration: 60_000 }] },
      { ratelimits: [{ name: "a", limit: 1, duration: 10 }] },
    ];
    for (const options of invalid) {
      const verified = Promise.resolve(verifier.verify(key, options));
      await expect(verified, JSON.stringify(options)).rejects.toMatchObject({ code: "invalid_input" });
    }
    await expect(Promise.resolve(verifier.verify(key, { credits: { cost: 1.5 } }))).rejects.toBeInstanceOf(RangeError);
    expect(await verifier.verify(key)).toMatchObject({ valid: true, credits: 9 });
  });

  it("have their tags counted if the service is asked; local verifications are counted without", async () => {
    const [verifier] = (await openVerifiers()) as [Verifier];
    const { key, keyId } = await scene.createKey();
    await verifyLocally(verifier, key);
    const { local, remote } = verifier.stats;
    for (let call = 0; call < 3; call++) await verifier.verify(key, { tags: ["path=/a"], credits: { cost: 1 } });
    for (let call = 0; call < 5; call++) await verifier.verify(key, { tags: ["path=/a"] });
    const asked = verifier.stats.remote - remote;
    const total = async (request: object) => {
      const parts = await scene.call<{ total: number }[]>("keys.getUsage", { keyId, ...request });
      return parts.reduce((sum, part) => sum + part.total, 0);
    };
    await verifier.close();
    const all = verifier.stats.local + verifier.stats.remote;
    await expect.poll(() => total({}), { timeout: 15_000 }).toBe(all);
    expect(await total({ tag: "path=/a" })).toBe(asked);
    expect(local).toBeGreaterThan(0);
  });
});
