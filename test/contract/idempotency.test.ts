import { request as httpRequest } from "node:http";
import { setTimeout as sleep } from "node:timers/promises";
import type postgres from "postgres";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { openSql } from "../../commands/open-sql.js";
import type { HeaderLines } from "../support/clients/headers.js";
import { operatorKey } from "../support/harness.js";
import { idempotentOperations, keyOperations, operationOf, operatorOperations } from "../support/operations.js";
import { newHash } from "./callers.js";
import { allProtocols, openContract } from "./cases.js";
import { credentialFor, newCall, newKey, withKey } from "./retries.js";
import { openScene } from "./scene.js";

const contract = openContract(allProtocols, {}, { alwaysInTurn: true });
const { everyProtocol, someProtocols } = contract;
const conflict = "data/idempotency_conflict";
const day = 86_400_000;

let sql: postgres.Sql;
beforeAll(() => {
  sql = openSql(contract.app.databaseUrl, { max: 1 });
});
afterAll(() => sql.end());

/** The total number of changes. */
async function countChanges(): Promise<number> {
  const [row] = await sql<{ count: number }[]>`select count(*)::int from audit_events`;
  return row?.count ?? Number.NaN;
}

/** Runs something that must not change anything. */
async function changingNothing<T>(work: () => Promise<T>): Promise<T> {
  const before = await countChanges();
  const result = await work();
  expect(await countChanges(), "changes made").toBe(before);
  return result;
}

describe("a retry with the same Idempotency-Key", () => {
  test("is supported by the operations that create something, or add to a number", () => {
    expect(idempotentOperations).toEqual([
      "createKey",
      "rerollKey",
      "updateCredits",
      "migrateKeys",
      "createIdentity",
      "createApi",
      "createPermission",
      "createRole",
      "createWorkspace",
      "createRootKey",
    ]);
  });

  for (const operation of idempotentOperations) {
    test(`gets the first response over any protocol, and changes nothing: ${operation}`, async () => {
      for (const one of allProtocols) {
        const scene = await openScene(contract.protocols[one], contract.clock);
        const call = await newCall(operation, scene);
        const first = await scene.ok(operation, ...call);
        const again = () =>
          Promise.all(allProtocols.map((other) => contract.protocols[other].call(operation, ...call)));
        expect(await changingNothing(again), `after ${one}`).toEqual(
          allProtocols.map(() => ({ ok: true, data: first })),
        );
      }
    });
  }

  test("has its own request id", async () => {
    const { home } = await openScene(contract.protocols.http, contract.clock);
    const headers = {
      authorization: `Bearer ${home.key}`,
      "Idempotency-Key": "one",
      "content-type": "application/json",
    };
    const send = async () =>
      (await fetch(`${contract.app.httpUrl}/v2/keys.createKey`, { method: "POST", headers })).json();
    const [first, again] = [await send(), await send()] as { meta: { requestId: string }; data: unknown }[];
    expect(again?.data).toEqual(first?.data);
    expect(again?.meta.requestId).not.toBe(first?.meta.requestId);
  });

  everyProtocol(
    "gets the first response, also if the created resource was changed or deleted since",
    async ({ ok, refused, home }) => {
      const [forIdentity, forKey] = [newKey(), newKey()];
      const identity = { externalId: "user_1" };
      const made = await ok("createIdentity", home.key, identity, forIdentity);
      const key = await ok("createKey", home.key, made, forKey);
      await ok("deleteKey", home.key, { keyId: key.keyId });
      await ok("deleteIdentity", home.key, made);
      expect(await ok("createIdentity", home.key, identity, forIdentity)).toEqual(made);
      expect(await ok("createKey", home.key, made, forKey)).toEqual(key);
      await refused("data/identity_not_found", "getIdentity", home.key, made);
      await refused("data/key_not_found", "getKey", home.key, { keyId: key.keyId });
    },
  );

  everyProtocol("is the same request for any order of the keys of its meta", async ({ ok, home }) => {
    const key = newKey();
    const [one, other] = [{ meta: { a: 1, b: { c: 2, d: 3 } } }, { meta: { b: { d: 3, c: 2 }, a: 1 } }];
    expect(await ok("createKey", home.key, other, key)).toEqual(await ok("createKey", home.key, one, key));
  });

  test("is not refused because its `expires` has passed meanwhile", async () => {
    const { ok, home } = await openScene(contract.protocols.http, contract.clock);
    const [request, key] = [{ expires: Date.now() + 300 }, newKey()];
    const first = await ok("createKey", home.key, request, key);
    await sleep(request.expires - Date.now() + 1);
    expect(await ok("createKey", home.key, request, key)).toEqual(first);
  });

  everyProtocol("gets the first response for 24 hours; then it makes the change again", async ({ ok, home, clock }) => {
    const key = newKey();
    const first = await ok("createKey", home.key, {}, key);
    await clock.advance(day - 60_000);
    expect(await ok("createKey", home.key, {}, key)).toEqual(first);
    await clock.advance(60_000);
    const second = await ok("createKey", home.key, {}, key);
    expect(second.keyId).not.toBe(first.keyId);
    expect(await ok("createKey", home.key, {}, key)).toEqual(second);
  });
});

describe("a request with a used Idempotency-Key", () => {
  everyProtocol("and another body is refused, and changes nothing", async ({ ok, refused, home }) => {
    const key = newKey();
    const first = await ok("createKey", home.key, { name: "ci", meta: { a: [1, 2] } }, key);
    for (const other of [{}, { name: "CI", meta: { a: [1, 2] } }, { name: "ci", meta: { a: [2, 1] } }]) {
      await changingNothing(() => refused(conflict, "createKey", home.key, other, key));
    }
    expect(await ok("createKey", home.key, { name: "ci", meta: { a: [1, 2] } }, key)).toEqual(first);
  });

  everyProtocol("and another operation is refused, even if the body is the same", async ({ ok, refused, home }) => {
    const key = newKey();
    const request = { externalId: "user_1" };
    const { keyId } = await ok("createKey", home.key, request, key);
    await changingNothing(() => refused(conflict, "createIdentity", home.key, request, key));
    await changingNothing(() => refused(conflict, "rerollKey", home.key, { keyId }, key));
  });

  everyProtocol("changes a number once, however often it is sent", async ({ ok, home }) => {
    const { keyId } = await ok("createKey", home.key, { credits: { remaining: 10 } });
    for (const [operation, value, remaining] of [
      ["increment", 5, 15],
      ["decrement", 3, 12],
      ["set", 40, 40],
    ] as const) {
      const [request, key] = [{ keyId, operation, value }, newKey()];
      for (let attempt = 1; attempt <= 3; attempt++) {
        expect(await ok("updateCredits", home.key, request, key)).toEqual({ remaining });
      }
      expect((await ok("getKey", home.key, { keyId })).credits).toEqual({ remaining });
    }
  });

  everyProtocol("imports keys once, however often it is sent", async ({ ok, home }) => {
    const [request, key] = [{ migrationId: "m", keys: [{ hash: newHash() }, { hash: newHash() }] }, newKey()];
    const first = await ok("migrateKeys", home.key, request, key);
    expect(first).toMatchObject({ migrated: request.keys, failed: [] });
    expect(await ok("migrateKeys", home.key, request, key)).toEqual(first);
    // Without the Idempotency-Key, the hashes exist already.
    const again = await ok("migrateKeys", home.key, request);
    expect(again).toEqual({ migrated: [], failed: request.keys.map(({ hash }) => hash) });
    expect(await ok("listKeys", home.key)).toHaveLength(3);
  });

  everyProtocol("of another caller is a separate request", async ({ ok, home, newWorkspace }) => {
    const key = newKey();
    const neighbour = await newWorkspace();
    const colleague = await ok("createKey", home.key, { scopes: ["*"] });
    const callers = [home, colleague, neighbour];
    const made = new Set<string>();
    for (const caller of callers) made.add((await ok("createKey", caller.key, {}, key)).keyId);
    made.add((await ok("createWorkspace", operatorKey, { name: "Acme" }, key)).keyId);
    expect(made.size).toBe(4);
    // Another caller's use of the key is not even a conflict.
    await ok("createIdentity", (await newWorkspace()).key, { externalId: "user_1" }, key);
  });

  everyProtocol("of a failed call is executed: errors are not stored", async ({ ok, refused, home }) => {
    const key = newKey();
    const { identityId } = await ok("createIdentity", home.key, { externalId: "user_1" });
    await refused("data/identity_already_exists", "createIdentity", home.key, { externalId: "user_1" }, key);
    await refused("application/invalid_input", "createIdentity", home.key, { externalId: "" }, key);
    await refused("data/identity_not_found", "createKey", home.key, { identityId: "id_none" }, key);
    await ok("deleteIdentity", home.key, { identityId });
    const made = await ok("createIdentity", home.key, { externalId: "user_1" }, key);
    expect(await ok("createIdentity", home.key, { externalId: "user_1" }, key)).toEqual(made);
  });
});

describe("no stored response is returned to a caller that is no longer authorized:", () => {
  everyProtocol("a disabled workspace", async ({ ok, refused, home }) => {
    const key = newKey();
    const first = await ok("createKey", home.key, {}, key);
    await ok("disableWorkspace", operatorKey, { workspaceId: home.workspaceId, reason: "OWNER_REQUEST" });
    await refused("authorization/workspace_disabled", "createKey", home.key, {}, key);
    await ok("enableWorkspace", operatorKey, { workspaceId: home.workspaceId });
    expect(await ok("createKey", home.key, {}, key)).toEqual(first);
  });

  everyProtocol("a key without the scope, a disabled key, a deleted key", async ({ ok, refused, home }) => {
    const key = newKey();
    const caller = await ok("createKey", home.key, { scopes: ["*"] });
    const { keyId } = caller;
    await ok("createKey", caller.key, {}, key);
    await ok("updateKey", home.key, { keyId, scopes: ["keys.read"] });
    await refused("authorization/insufficient_permissions", "createKey", caller.key, {}, key);
    await ok("updateKey", home.key, { keyId, scopes: ["*"], enabled: false });
    await refused("authorization/key_disabled", "createKey", caller.key, {}, key);
    await ok("deleteKey", home.key, { keyId });
    await refused("authentication/key_not_found", "createKey", caller.key, {}, key);
  });
});

describe("an Idempotency-Key", () => {
  const refusal = {
    code: "application/invalid_input",
    fields: [{ location: "Idempotency-Key", message: expect.stringContaining("255 printable ASCII") }],
  };
  const malformed: [what: string, headers: HeaderLines][] = [
    ["is empty", withKey("")],
    ["has 256 characters", withKey("x".repeat(256))],
    ["has a comma", withKey("a,b")],
    ["is sent twice", [...withKey("a"), ...withKey("b")]],
    ["is sent twice with the same value", [...withKey("a"), ...withKey("a")]],
  ];
  everyProtocol(
    `that ${malformed.map(([what]) => what).join(", ")} is refused, and the header named`,
    async ({ call, home }) => {
      for (const [what, headers] of malformed) {
        expect(await changingNothing(() => call("createKey", home.key, {}, headers)), what).toMatchObject(refusal);
      }
    },
  );

  everyProtocol("that is malformed is refused by every operation that takes one", async (scene) => {
    for (const operation of idempotentOperations) {
      const [credential, request] = await newCall(operation, scene);
      const refused = () => scene.call(operation, credential, request, withKey(""));
      expect(await changingNothing(refused)).toMatchObject(refusal);
    }
  });

  // A grpc-js client does not even send this. grpc-protocol-errors.test.ts sends it over a bare connection.
  someProtocols(
    ["http", "connect", "grpc-web"],
    "that is not ASCII is refused, and the header named",
    async ({ call, home }) => {
      expect(await call("createKey", home.key, {}, withKey("clé"))).toMatchObject(refusal);
    },
  );

  test("in two HTTP header lines is refused", async () => {
    const { home } = await openScene(contract.protocols.http, contract.clock);
    const lines = ["Idempotency-Key", "a", "idempotency-key", "a", "content-type", "application/json"];
    const headers = ["authorization", `Bearer ${home.key}`, ...lines];
    const url = new URL("/v2/keys.createKey", contract.app.httpUrl);
    const status = await new Promise((resolve, reject) => {
      const sent = httpRequest(url, { method: "POST", headers: ["host", url.host, ...headers] }, (response) => {
        response.resume();
        resolve(response.statusCode);
      });
      sent.on("error", reject).end();
    });
    expect(status).toBe(400);
  });

  everyProtocol("may have 255 characters, including all printable ones", async ({ ok, home }) => {
    const printable = Array.from({ length: 0x5f }, (_, index) => String.fromCharCode(0x20 + index)).join("");
    const key = withKey(`x${printable.replace(",", "")}`.padEnd(255, "x"));
    expect(await ok("createKey", home.key, {}, key)).toEqual(await ok("createKey", home.key, {}, key));
  });

  everyProtocol("is validated only after the caller is authorized", async ({ refused, home }) => {
    await refused("authentication/missing", "createKey", [], {}, withKey(""));
    await refused("authorization/insufficient_permissions", "createWorkspace", home.key, {}, withKey(""));
  });

  test("is ignored by operations that create nothing, even if it is malformed", async () => {
    const others = [...keyOperations, ...operatorOperations].filter((name) => !operationOf(name).acceptsIdempotencyKey);
    expect(others.length).toBeGreaterThan(10);
    for (const protocol of allProtocols) {
      const scene = await openScene(contract.protocols[protocol], contract.clock);
      const outcomes = others.map((operation) =>
        scene.call(operation, credentialFor(operation, scene), operationOf(operation).wellFormed, withKey("")),
      );
      const codes = (await Promise.all(outcomes)).map((outcome) => (outcome.ok ? "ok" : outcome.code));
      expect(codes.filter((code) => !/^(ok|data\/\w+_not_found)$/.test(code))).toEqual([]);
    }
  });
});
