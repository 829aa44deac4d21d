import { describe, expect, test } from "vitest";
import { openSql } from "../../commands/open-sql.js";
import type { CallRequest } from "../support/clients/protocol-client.js";
import type { OperationName } from "../support/operations.js";
import { openContract } from "./cases.js";
import { createFullKey, day } from "./key-settings.js";
import { openScene } from "./scene.js";

const contract = openContract();
const { everyProtocol } = contract;
const invalid = "application/invalid_input";

describe("the number of random bytes of a secret", () => {
  everyProtocol("is at least what was asked for, and at least 24", async (scene) => {
    const { ok, home } = scene;
    for (const [byteLength, characters] of [
      [16, 33],
      [24, 33],
      [32, 43],
      [255, 343],
    ] as const) {
      const { keyId, key } = await ok("createKey", home.key, { byteLength, prefix: "acme", scopes: ["keys.read"] });
      expect(key).toMatch(new RegExp(`^acme_[0-9A-Za-z]{${characters + 6}}$`));
      expect(await ok("verifyKey", home.key, { key })).toMatchObject({ code: "VALID", keyId });
      expect(await ok("whoami", home.key, { key })).toMatchObject({ keyId, start: key.slice(0, 9) });
      await ok("listKeys", key); // as a bearer token, too
      expect(await ok("verifyKey", home.key, { key: `${key}0` })).toMatchObject({ code: "NOT_FOUND" });
    }
  });

  everyProtocol("is between 16 and 255", async (scene) => {
    for (const byteLength of [0, 15, 256, -1]) {
      const { fields } = await scene.refused(invalid, "createKey", scene.home.key, { byteLength });
      expect(fields).toMatchObject([{ location: "byteLength" }]);
    }
  });
});

describe("a secret that could be returned again", () => {
  everyProtocol("is refused with the reason; false is accepted", async (scene) => {
    const { ok, refused, home } = scene;
    const requests: [OperationName, string, CallRequest][] = [
      ["createKey", "recoverable", {}],
      ["getKey", "decrypt", { keyId: home.keyId }],
      ["listKeys", "decrypt", {}],
    ];
    for (const [operation, field, request] of requests) {
      await ok(operation, home.key, { ...request, [field]: false });
      const { fields } = await refused(invalid, operation, home.key, { ...request, [field]: true });
      expect(fields).toEqual([
        { location: field, message: "must be false: secrets are not stored, so they cannot be returned again" },
      ]);
    }
  });
});

describe("a permanent deletion", () => {
  test("erases the name and the meta of the row at once; an ordinary one keeps them for a while", async () => {
    const scene = await openScene(contract.protocols.http, contract.clock);
    const { ok, home } = scene;
    const sql = openSql(contract.app.databaseUrl, { max: 1 });
    for (const [permanent, left] of [
      [true, { name: null, meta: null }],
      [false, { name: "first name", meta: { plan: "pro", seats: [1, 2] } }],
    ] as const) {
      const { keyId, key } = await createFullKey(scene);
      await ok("deleteKey", home.key, { keyId, permanent });
      expect(await sql`select name, meta from keys where key_id = ${keyId}`).toEqual([left]);
      expect(await ok("verifyKey", home.key, { key })).toMatchObject({ code: "NOT_FOUND" });
      const [deletion] = await ok("listAuditEvents", home.key, { resourceId: keyId });
      expect(deletion).toMatchObject({ type: "key.delete", before: { name: "first name" } });
    }
    await sql.end();
  });
});

describe("an expiry in the past", () => {
  everyProtocol("ends the key at once; only a later one makes it usable again", async (scene) => {
    const { ok, home, clock } = scene;
    const { keyId, key } = await ok("createKey", home.key, { scopes: ["keys.read"] });
    for (const expires of [clock.now() - 1, clock.now() - day, 0]) {
      expect(await ok("updateKey", home.key, { keyId, expires })).toMatchObject({ expires });
      expect(await ok("verifyKey", home.key, { key })).toMatchObject({ code: "EXPIRED" });
      await scene.refused("authentication/key_expired", "listKeys", key);
    }
    await ok("updateKey", home.key, { keyId, expires: clock.now() + day });
    expect(await ok("verifyKey", home.key, { key })).toMatchObject({ code: "VALID" });
    await scene.refused(invalid, "createKey", home.key, { expires: clock.now() - 1 });
  });

  everyProtocol("can be set by a key for itself, and by no key with fewer scopes", async (scene) => {
    const { ok, refused, home, clock } = scene;
    const { keyId, key } = await ok("createKey", home.key, { scopes: ["keys.update"] });
    const expires = clock.now() - 1;
    await refused("authorization/insufficient_permissions", "updateKey", key, { keyId: home.keyId, expires });
    await ok("updateKey", key, { keyId, expires });
    await refused("authentication/key_expired", "listKeys", key);
  });
});
