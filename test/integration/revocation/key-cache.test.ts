import { afterAll, beforeAll, expect, it } from "vitest";
import { succeed } from "../../support/calls.js";
import { createWorkspace } from "../../support/clients/http-requests.js";
import { openTestApp, type TestApp } from "../../support/harness.js";
import { readLookups } from "../../support/metrics.js";

/** Creates the keys. The other application has not cached them, and has space for about twenty of the large ones. */
let creator: TestApp;
let app: TestApp;
let caller: string;

beforeAll(async () => {
  creator = await openTestApp({ redis: undefined });
  app = await openTestApp({ databaseUrl: creator.databaseUrl, redis: undefined, metricsPort: 0, cacheMb: 1 });
  caller = (await createWorkspace(creator.httpUrl)).key;
});
afterAll(async () => {
  await app.close();
  await creator.close();
});

interface Verification {
  readonly code: string;
  readonly keyId: string;
  readonly meta?: { readonly number: number };
}
const createKey = (meta: object) =>
  succeed<{ keyId: string; key: string }>(creator.httpUrl, "keys.createKey", caller, { meta });
const verify = (key: string) => succeed<Verification>(app.httpUrl, "keys.verifyKey", caller, { key });

it("five hundred concurrent verifications of a key that is not cached cost one read of PostgreSQL", async () => {
  const { key, keyId } = await createKey({});
  await verify((await createKey({})).key); // the calling key is cached from here on
  const before = await readLookups(app, "key");
  const results = await Promise.all(Array.from({ length: 500 }, () => verify(key)));
  expect(new Set(results.map((result) => result.keyId))).toEqual(new Set([keyId]));
  const after = await readLookups(app, "key");
  expect(after.postgres - before.postgres).toBe(1);
});

it("more keys than the cache can contain are verified correctly, and the least recently used are evicted", async () => {
  const large = "x".repeat(15_000);
  const made: Awaited<ReturnType<typeof createKey>>[] = [];
  for (let number = 0; number < 150; number++) made.push(await createKey({ number, large }));
  const verifyAll = async () => {
    const before = await readLookups(app, "key");
    for (const [number, { key, keyId }] of made.entries()) {
      expect(await verify(key)).toMatchObject({ code: "VALID", keyId, meta: { number } });
    }
    const after = await readLookups(app, "key");
    return after.postgres - before.postgres;
  };
  expect(await verifyAll()).toBe(150);
  // In the same order again: each key was evicted before it was read again.
  expect(await verifyAll()).toBe(150);

  const last = made.slice(-15);
  const before = await readLookups(app, "key");
  for (const { key } of last) await verify(key);
  expect((await readLookups(app, "key")).postgres).toBe(before.postgres);
  for (const { keyId } of last) await succeed(creator.httpUrl, "keys.updateKey", caller, { keyId, enabled: false });
  for (const { key } of last) expect(await verify(key)).toMatchObject({ code: "DISABLED" });
});
