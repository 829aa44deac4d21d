import { afterAll, beforeAll, beforeEach, describe, expect, it } from "vitest";
import { mintId } from "../../src/ids.js";
import { hashSecret } from "../../src/keys/secret.js";
import { disableRow, openSchema, type Schema } from "./schema.js";

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

describe("a change that can alter a decision takes the next epoch and stamps the row with it", () => {
  it("disabling a workspace, and enabling it again", async () => {
    const before = await schema.epoch();
    await disableRow(schema.sql, workspaceId);
    expect([await schema.epoch(), await schema.workspaceStamp(workspaceId)]).toEqual([before + 1n, before + 1n]);
    await schema.sql`update workspaces set disabled_at = null, disabled_reason = null where workspace_id = ${workspaceId}`;
    expect([await schema.epoch(), await schema.workspaceStamp(workspaceId)]).toEqual([before + 2n, before + 2n]);
  });

  it.each([
    ["enabled", () => schema.sql`enabled = false`],
    ["scopes", () => schema.sql`scopes = '{keys.read}'`],
    ["permissions", () => schema.sql`permissions = '{keys.read}'`],
    ["expiry", () => schema.sql`expires_at = now()`],
    ["secret", () => schema.sql`hash = decode(${hashSecret(mintId("key"))}, 'hex')`],
  ])("a key's %s", async (_what, assignment) => {
    const before = await schema.epoch();
    await schema.sql`update keys set ${assignment()} where key_id = ${keyIds[1] ?? ""}`;
    expect(await schema.epoch()).toBe(before + 1n);
    expect(await schema.keyStamps(workspaceId)).toEqual([0n, before + 1n, 0n]);
  });

  it("a change of many keys is one epoch, on all of them", async () => {
    const before = await schema.epoch();
    await schema.sql`update keys set enabled = false where workspace_id = ${workspaceId}`;
    expect(await schema.epoch()).toBe(before + 1n);
    expect(await schema.keyStamps(workspaceId)).toEqual([before + 1n, before + 1n, before + 1n]);
  });

  it("the deletion of an identity: one row, whatever the number of its keys", async () => {
    const identityId = mintId("id");
    await schema.sql`
      insert into identities (identity_id, workspace_id, external_id, meta, created_at, updated_at)
      values (${identityId}, ${workspaceId}, 'owner', '{}', now(), now())`;
    await schema.sql`update keys set identity_id = ${identityId} where workspace_id = ${workspaceId}`;
    const [before, stamps] = [await schema.epoch(), await schema.keyStamps(workspaceId)];
    await schema.sql`update identities set deleted_at = now() where identity_id = ${identityId}`;
    expect(await schema.epoch()).toBe(before + 1n);
    const [identity] = await schema.sql`select changed_epoch from identities where identity_id = ${identityId}`;
    expect(identity).toEqual({ changedEpoch: before + 1n });
    expect(await schema.keyStamps(workspaceId)).toEqual(stamps);
  });

  it("nothing, when the transaction is rolled back", async () => {
    const before = await schema.epoch();
    const undone = schema.sql.begin(async (transaction) => {
      await disableRow(transaction, workspaceId);
      throw new Error("changed my mind");
    });
    await expect(undone).rejects.toThrow("changed my mind");
    expect([await schema.epoch(), await schema.workspaceStamp(workspaceId)]).toEqual([before, 0n]);
  });

  it("even if the statement claims another stamp", async () => {
    const before = await schema.epoch();
    await schema.sql`update keys set enabled = false, changed_epoch = 0 where key_id = ${keyIds[0] ?? ""}`;
    expect((await schema.keyStamps(workspaceId))[0]).toBe(before + 1n);
  });
});

describe("a change that alters no decision takes no epoch", () => {
  it("the name of a workspace, and what was noted about its disabling", async () => {
    await disableRow(schema.sql, workspaceId);
    const before = await schema.epoch();
    await schema.sql`update workspaces set name = 'other', disabled_note = 'note' where workspace_id = ${workspaceId}`;
    expect([await schema.epoch(), await schema.workspaceStamp(workspaceId)]).toEqual([before, before]);
  });

  it("the times of the last use and the last change of a key", async () => {
    const before = await schema.epoch();
    await schema.sql`update keys set last_used_at = now(), updated_at = now() where workspace_id = ${workspaceId}`;
    expect(await schema.epoch()).toBe(before);
    expect(await schema.keyStamps(workspaceId)).toEqual([0n, 0n, 0n]);
  });

  it("a new workspace and a new key", async () => {
    const before = await schema.epoch();
    await schema.insertKey(await schema.insertWorkspace());
    expect(await schema.epoch()).toBe(before);
  });
});
