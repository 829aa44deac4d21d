import { createHash } from "node:crypto";
import { afterAll, beforeAll, describe, expect, it, vi } from "vitest";
import { createProtobufClient } from "../../../src/client/protobuf.js";
import { mintSecret } from "../../../src/keys/secret.js";
import { toVerifyResult } from "../../../src/verifier/result.js";
import type { Verifier, VerifyResult } from "../../../src/verifier/verifier.js";
import { succeed } from "../../support/calls.js";
import { createWorkspace } from "../../support/clients/http-requests.js";
import { openScene, openTestVerifier, type Scene, verifyLocally } from "../../support/verifier-scene.js";

let scene: Scene;
let secrets: Record<string, string>;
beforeAll(async () => {
  scene = await openScene();
  const full = {
    name: "full",
    meta: { plan: "pro", nested: { limits: [1, 2.5, null, true] } },
    expires: Date.now() + 3_600_000,
    permissions: ["documents.*", "admin"],
    externalId: "user_1",
  };
  const keyOf = async (body: object) => (await scene.createKey(body)).key;
  const deleted = await scene.createKey();
  await scene.call("keys.deleteKey", { keyId: deleted.keyId });
  const expired = await scene.createKey();
  await scene.call("keys.rerollKey", { keyId: expired.keyId, expiration: 0 });
  secrets = {
    plain: await keyOf({}),
    full: await keyOf(full),
    disabled: await keyOf({ enabled: false, permissions: ["a"] }),
    expired: expired.key,
    deleted: deleted.key,
    foreign: (await createWorkspace(scene.app.httpUrl)).key,
    unknown: mintSecret().plaintext,
    malformed: "lk_not_a_secret",
    "wrong checksum": `${mintSecret().plaintext.slice(0, -1)}!`,
    empty: "",
    long: "k".repeat(512),
    "too long": "k".repeat(513),
  };
});
afterAll(() => scene.close());

const queries = [
  undefined,
  "admin",
  "documents.read AND (admin OR other)",
  "nothing",
  "documents.read AND",
  "",
  " ",
  "a b",
  "(".repeat(101),
  `admin${" ".repeat(996)}`,
  `admin OR ${"a".repeat(100)}`,
];

const names = ["plain", "full", "disabled", "expired", "deleted", "foreign", "unknown", "malformed"].concat([
  "wrong checksum",
  "empty",
  "long",
  "too long",
]);

/** A result, or the error in its place. */
const outcomeOf = (result: VerifyResult | Promise<VerifyResult>) =>
  Promise.resolve(result).catch(({ code, status, fieldErrors, message }) => ({ code, status, fieldErrors, message }));

describe.each(names)("the results for the secret '%s' are those of VerifyKey", (name) => {
  let verifier: Verifier;

  it("with every permission query, cached and not cached", async () => {
    verifier = await openTestVerifier(scene);
    const client = createProtobufClient({ url: scene.app.httpUrl, key: scene.caller.key });
    const key = secrets[name] ?? "";
    const isCached = ["plain", "full", "disabled", "expired"].includes(name);
    for (const permissions of queries) {
      const options = permissions === undefined ? {} : { permissions };
      const expected = await outcomeOf(client.keys.verifyKey({ key, ...options }).then(toVerifyResult));
      expect(await outcomeOf(verifier.verify(key, options)), `${permissions}`).toEqual(expected);
      if (isCached) await verifyLocally(verifier, key);
      expect(await outcomeOf(verifier.verify(key, options)), `${permissions}, cached`).toEqual(expected);
    }
  });
});

it("a cached key is verified at once, without a promise, with all its data", async () => {
  const verifier = await openTestVerifier(scene);
  const result = await verifyLocally(verifier, secrets["full"] ?? "", "documents.read AND admin");
  expect(result).toEqual({
    valid: true,
    code: "VALID",
    keyId: expect.stringMatching(/^key_/),
    name: "full",
    meta: { plan: "pro", nested: { limits: [1, 2.5, null, true] } },
    expires: expect.any(Date),
    permissions: ["documents.*", "admin"],
    roles: [],
    identity: { identityId: expect.stringMatching(/^id_/), externalId: "user_1", meta: {} },
  });
  expect(verifier.stats.local).toBeGreaterThan(0);
});

it("an imported key, whose secret has another format, is found as soon as the import has returned", async () => {
  const { key: rootKey } = await createWorkspace(scene.app.httpUrl);
  const verifier = await openTestVerifier(scene, { key: rootKey });
  const secret = "sk_live_of_another_service";
  await verifyLocally(verifier, rootKey);
  expect(await verifier.verify(secret)).toEqual({ valid: false, code: "NOT_FOUND" });
  const hash = createHash("sha256").update(secret).digest("base64");
  await succeed(scene.app.httpUrl, "keys.migrateKeys", rootKey, { migrationId: "a", keys: [{ hash, name: "moved" }] });
  expect(await verifier.verify(secret)).toMatchObject({ code: "VALID", name: "moved" });
  expect(await verifyLocally(verifier, secret)).toMatchObject({ code: "VALID", name: "moved" });
});

it("a malformed secret is refused without a call to the service, if no keys were imported", async () => {
  const verifier = await openTestVerifier(scene);
  await vi.waitFor(
    async () => {
      await verifyLocally(verifier, secrets["plain"] ?? ""); // there is a grant
      const { remote } = verifier.stats;
      expect(await verifier.verify("lk_not_a_secret")).toEqual({ valid: false, code: "NOT_FOUND" });
      expect(verifier.stats.remote).toBe(remote);
    },
    { timeout: 15_000 },
  );
});
