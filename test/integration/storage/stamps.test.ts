import { afterAll, beforeAll, beforeEach, describe, expect, it } from "vitest";
import { mintId } from "../../../src/ids.js";
import { hashSecret } from "../../../src/keys/secret.js";
import { disableRow, openSchema, type Schema } from "../../support/schema.js";

let schema: Schema;
let workspaceId: string;
let keyIds: string[];

beforeAll(async () => {
  schema = await openSchema();
});
afterAll(() => schema.close());
beforeEach(async () => {
  workspaceId = await schema.insertWorkspace();
  keyIds = [];
  for (let i = 0; i < 3; i++) keyIds.push(await schema.insertKey(workspaceId));
});

describe("a change that can alter an authorization decision stamps the row with its transaction id", () => {
  it("of a workspace: disabled, and enabled again", async () => {
    await disableRow(schema.sql, workspaceId);
    expect(await schema.isWorkspaceStamped(workspaceId)).toBe(true);
    await schema.sql`update workspaces set disabled_at = null, disabled_reason = null where workspace_id = ${workspaceId}`;
    expect(await schema.isWorkspaceStamped(workspaceId)).toBe(true);
  });

  it.each([
    ["enabled", () => schema.sql`enabled = false`],
    ["scopes", () => schema.sql`scopes = '{keys.read}'`],
    ["permissions", () => schema.sql`permissions = '{keys.read}'`],
    ["expiry", () => schema.sql`expires_at = now()`],
    ["secret", () => schema.sql`hash = decode(${hashSecret(mintId("key"))}, 'hex')`],
    ["deletion, even with another stamp", () => schema.sql`deleted_at = now(), changed_xid = '7'`],
  ])("of a key: %s", async (_name, assignment) => {
    await schema.sql`update keys set ${assignment()} where key_id = ${keyIds[1] ?? ""}`;
    expect(await schema.areKeysStamped(workspaceId)).toEqual([false, true, false]);
  });

  it("of many keys at once: every row", async () => {
    await schema.sql`update keys set enabled = false where workspace_id = ${workspaceId}`;
    expect(await schema.areKeysStamped(workspaceId)).toEqual([true, true, true]);
  });

  it("deletion of an identity: one row, whatever the number of its keys", async () => {
    const identityId = mintId("id");
    await schema.sql`
      insert into identities (identity_id, workspace_id, external_id, meta, created_at, updated_at)
      values (${identityId}, ${workspaceId}, 'owner', '{}', now(), now())`;
    await schema.sql`update identities set deleted_at = now() where identity_id = ${identityId}`;
    const [identity] = await schema.sql`
      select changed_xid::xid = xmin as stamped from identities where identity_id = ${identityId}`;
    expect(identity).toEqual({ stamped: true });
    expect(await schema.areKeysStamped(workspaceId)).toEqual([false, false, false]);
  });

  it("of an override: created, changed and deleted, in one row for all of the workspace", async () => {
    const isStamped = async () => {
      const [row] = await schema.sql<{ stamped: boolean }[]>`
        select changed_xid::xid = xmin as stamped from override_versions where workspace_id = ${workspaceId}`;
      await schema.sql`update override_versions set changed_xid = '0' where workspace_id = ${workspaceId}`;
      return row?.stamped;
    };
    await schema.sql`
      insert into rate_limit_overrides (override_id, workspace_id, namespace, identifier, "limit", duration, created_at)
      values (${mintId("ovr")}, ${workspaceId}, 'email.send', '*', 1, 1000, now())`;
    expect(await isStamped()).toBe(true);
    await schema.sql`update rate_limit_overrides set "limit" = 2 where workspace_id = ${workspaceId}`;
    expect(await isStamped()).toBe(true);
    await schema.sql`delete from rate_limit_overrides where workspace_id = ${workspaceId}`;
    expect(await isStamped()).toBe(true);
  });

  it("not if the transaction is rolled back", async () => {
    const rolledBack = schema.sql.begin(async (transaction) => {
      await disableRow(transaction, workspaceId);
      throw new Error("rolled back by the test");
    });
    await expect(rolledBack).rejects.toThrow("rolled back by the test");
    expect(await schema.isWorkspaceStamped(workspaceId)).toBe(false);
  });
});

describe("a change that alters no authorization decision leaves the stamp unchanged", () => {
  it("the name of a workspace, and the note on why it is disabled", async () => {
    await disableRow(schema.sql, workspaceId);
    await schema.sql`update workspaces set name = 'other', disabled_note = 'note' where workspace_id = ${workspaceId}`;
    expect(await schema.isWorkspaceStamped(workspaceId)).toBe(false);
  });

  it("the times of the last use and the last change of a key", async () => {
    await schema.sql`update keys set last_used_at = now(), updated_at = now() where workspace_id = ${workspaceId}`;
    expect(await schema.areKeysStamped(workspaceId)).toEqual([false, false, false]);
  });

  it("a new workspace and a new key", async () => {
    const created = await schema.insertWorkspace();
    await schema.insertKey(created);
    expect(await schema.isWorkspaceStamped(created)).toBe(false);
    expect(await schema.areKeysStamped(created)).toEqual([false]);
  });
});
