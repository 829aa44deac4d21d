import { afterAll, beforeAll, expect, it } from "vitest";
import { succeed } from "../../support/calls.js";
import { createWorkspace } from "../../support/clients/http-requests.js";
import { openTestApp, type TestApp } from "../../support/harness.js";
import { readLookups } from "../../support/metrics.js";

/** Makes the keys; nothing of them is held by the other, which has room for about twenty of the large ones. */
let maker: TestApp;
let app: TestApp;
let caller: string;

beforeAll(async () => {
  maker = await openTestApp({ redis: undefined });
  app = await openTestApp({ databaseUrl: maker.databaseUrl, redis: undefined, metricsPort: 0, cacheMb: 1 });
  caller = (await createWorkspace(maker.httpUrl)).key;
});
afterAll(async () => {
  await app.close();
  await maker.close();
});

interface Verdict {
  readonly code: string;
  readonly keyId: string;
  readonly meta?: { readonly number: number };
}
const createKey = (meta: object) =>
  succeed<{ keyId: string; key: string }>(maker.httpUrl, "keys.createKey", caller, { meta });
const verify = (key: string) => succeed<Verdict>(app.httpUrl, "keys.verifyKey", caller, { key });

it("five hundred who ask at once about a key that is not held cost Postgres one question", async () => {
  const { key, keyId } = await createKey({});
  await verify((await createKey({})).key); // the caller is held from here on
  const before = await readLookups(app, "key");
  const verdicts = await Promise.all(Array.from({ length: 500 }, () => verify(key)));
  expect(new Set(verdicts.map((verdict) => verdict.keyId))).toEqual(new Set([keyId]));
  const after = await readLookups(app, "key");
  expect(after.postgres - before.postgres).toBe(1);
});

it("more keys than there is room for are answered rightly, and the longest unused are let go", async () => {
  const large = "x".repeat(15_000);
  const made: Awaited<ReturnType<typeof createKey>>[] = [];
  for (let number = 0; number < 150; number++) made.push(await createKey({ number, large }));
  const askForAll = async () => {
    const before = await readLookups(app, "key");
    for (const [number, { key, keyId }] of made.entries()) {
      expect(await verify(key)).toMatchObject({ code: "VALID", keyId, meta: { number } });
    }
    const after = await readLookups(app, "key");
    return after.postgres - before.postgres;
  };
  expect(await askForAll()).toBe(150);
  // In the same order again: each was let go before its turn came.
  expect(await askForAll()).toBe(150);

  const last = made.slice(-15);
  const before = await readLookups(app, "key");
  for (const { key } of last) await verify(key);
  expect((await readLookups(app, "key")).postgres).toBe(before.postgres);
  for (const { keyId } of last) await succeed(maker.httpUrl, "keys.updateKey", caller, { keyId, enabled: false });
  for (const { key } of last) expect(await verify(key)).toMatchObject({ code: "DISABLED" });
});
