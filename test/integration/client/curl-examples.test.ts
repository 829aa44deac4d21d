// Ten calls of the README and the guides, in the words of their curl commands: the path is the method, and the body is
// the argument. `npm run check` compiles them.
import { readFileSync } from "node:fs";
import { expect, it } from "vitest";
import { createClient } from "../../../src/client/client.js";
import { openFileApp } from "../../support/file-service.js";
import { operatorKey } from "../../support/harness.js";

const app = await openFileApp();
const operator = createClient({ url: app.httpUrl, key: operatorKey });
const { key: first, workspaceId } = await operator.workspaces.createWorkspace({ name: "Acme" });
const client = createClient({ url: app.httpUrl, key: first });

const documents = ["README.md", "docs/tutorial.md", "docs/guides/limits-and-credits.md"];
const commands = documents.map((file) => readFileSync(file, "utf8").replaceAll('\\"', '"')).join("\n");

/** Fails if the documents no longer contain the body of a call. */
function quoted(body: string): void {
  expect(commands).toContain(body);
}

it("creates a key for an identity, with its permissions and meta", async () => {
  quoted(
    '{"name": "ci", "prefix": "acme", "externalId": "user_42", "permissions": ["documents.*"], "meta": {"team": 7}}',
  );
  const created = await client.keys.createKey({
    ...{ name: "ci", prefix: "acme", externalId: "user_42", permissions: ["documents.*"], meta: { team: 7 } },
  });
  expect(created).toEqual({ keyId: expect.stringMatching(/^key_/), key: expect.stringMatching(/^acme_/) });
});

it("verifies a key with a permission query", async () => {
  quoted('"permissions": "documents.read AND (documents.write OR admin)"}');
  const { key } = await client.keys.createKey({ permissions: ["documents.*"] });
  const result = await client.keys.verifyKey({ key, permissions: "documents.read AND (documents.write OR admin)" });
  expect(result).toMatchObject({ valid: true, code: "VALID" });
});

it("disables a key", async () => {
  quoted('"enabled": false}');
  const { key, keyId } = await client.keys.createKey();
  expect(await client.keys.updateKey({ keyId, enabled: false })).toMatchObject({ keyId, enabled: false });
  expect(await client.keys.verifyKey({ key })).toMatchObject({ valid: false, code: "DISABLED" });
});

it("clears a field with null", async () => {
  quoted('"name": "build server", "meta": null}');
  const { keyId } = await client.keys.createKey({ name: "ci", meta: { team: 7 } });
  const key = await client.keys.updateKey({ keyId, name: "build server", meta: null });
  expect(key).toMatchObject({ name: "build server" });
  expect(key).not.toHaveProperty("meta");
});

it("rerolls a key", async () => {
  quoted('"expiration": 60000}');
  const { keyId } = await client.keys.createKey();
  const rerolled = await client.keys.rerollKey({ keyId, expiration: 60000 });
  expect(rerolled.keyId).not.toBe(keyId);
});

it("reads a key by its secret", async () => {
  quoted("/v2/keys.whoami");
  const { key, keyId } = await client.keys.createKey({ externalId: "user_42" });
  expect(await client.keys.whoami({ key })).toMatchObject({ keyId, identity: { externalId: "user_42" } });
});

it("creates an identity, and reads it by its externalId", async () => {
  quoted('{"externalId": "user_42", "meta": {"plan": "pro"}}');
  const { identityId } = await client.identities.createIdentity({ externalId: "user_43", meta: { plan: "pro" } });
  const identity = await client.identities.getIdentity({ externalId: "user_43" });
  expect(identity).toMatchObject({ identityId, meta: { plan: "pro" } });
});

it("disables a workspace with a reason, and enables it", async () => {
  quoted('"reason": "UNPAID_BILLING", "note": "invoice 1207"}');
  const disabled = await operator.workspaces.disableWorkspace({
    ...{ workspaceId, reason: "UNPAID_BILLING", note: "invoice 1207" },
  });
  expect(disabled).toMatchObject({ enabled: false, disabledReason: "UNPAID_BILLING", disabledAt: expect.any(Number) });
  expect(await operator.workspaces.enableWorkspace({ workspaceId })).toMatchObject({ enabled: true });
});

it("limits an identifier", async () => {
  quoted('"limit": 1, "duration": 3600000}');
  const limit = { namespace: "email.send", identifier: "user_42", limit: 1, duration: 3600000 };
  expect(await client.ratelimit.limit(limit)).toMatchObject({ success: true, remaining: 0 });
  expect(await client.ratelimit.limit(limit)).toMatchObject({ success: false });
});

it("lists audit events", async () => {
  quoted("/v2/workspaces.listAuditEvents");
  const { keyId } = await client.keys.createKey();
  const { data, pagination } = await client.workspaces.listAuditEvents({ resourceId: keyId });
  expect(data).toMatchObject([{ type: "key.create", resourceId: keyId, at: expect.any(Number) }]);
  expect(pagination).toEqual({ hasMore: false });
});
