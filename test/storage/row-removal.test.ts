import { afterAll, beforeAll, beforeEach, describe, expect, it } from "vitest";
import { openSchema, type Schema } from "./schema.js";

let schema: Schema;
let keyId: string;

beforeAll(async () => {
  schema = await openSchema();
});
afterAll(() => schema.close());
beforeEach(async () => {
  keyId = await schema.insertKey(await schema.insertWorkspace());
});

/** How many rows went, or why none did. */
async function remove(): Promise<string> {
  try {
    return `${(await schema.sql`delete from keys where key_id = ${keyId}`).count} gone`;
  } catch (error) {
    return error instanceof Error ? error.message : "";
  }
}

/** Ends the key at some time in the past. */
async function end(ago: string): Promise<void> {
  await schema.sql`update keys set deleted_at = now() - ${ago}::interval where key_id = ${keyId}`;
}

describe("the row of a key cannot go before every replica has seen its end", () => {
  it("not while the key lives", async () => {
    expect(await remove()).toBe(
      `the key ${keyId} cannot be removed yet: set deleted_at, and remove its row an hour later`,
    );
    expect(await schema.sql`select from keys where key_id = ${keyId}`).toHaveLength(1);
  });

  it.each(["0 seconds", "59 minutes", "-1 day"])("not %s after its end", async (ago) => {
    await end(ago);
    expect(await remove()).toContain("cannot be removed yet");
  });

  it("but an hour after its end", async () => {
    await end("61 minutes");
    expect(await remove()).toBe("1 gone");
  });

  it("one that lives keeps all others of the same statement", async () => {
    await end("2 hours");
    const living = await schema.insertKey(await schema.insertWorkspace());
    const both = schema.sql`delete from keys where key_id in (${keyId}, ${living})`;
    await expect(both).rejects.toMatchObject({ code: "23001" });
    expect(await remove()).toBe("1 gone");
  });

  it("nor by way of a workspace, which keeps its keys", async () => {
    const removal = schema.sql`delete from workspaces where workspace_id = (
      select workspace_id from keys where key_id = ${keyId})`;
    await expect(removal).rejects.toMatchObject({ code: "23503" });
  });

  it("nor all at once", async () => {
    await expect(schema.sql.begin((transaction) => transaction`truncate keys`)).rejects.toThrow("cannot be truncated");
    expect(await schema.sql`select from keys where key_id = ${keyId}`).toHaveLength(1);
  });
});
