import postgres from "postgres";
import { afterAll, beforeAll, beforeEach, describe, expect, it, onTestFinished } from "vitest";
import { openSql } from "../../commands/open-sql.js";
import { disableRow, openSchema, type Schema } from "./schema.js";

let schema: Schema;
let workspaceId: string;

beforeAll(async () => {
  schema = await openSchema();
});
afterAll(() => schema.close());
beforeEach(async () => {
  workspaceId = await schema.insertWorkspace();
});

describe("the order of epochs is the order of commits", () => {
  it("a second change waits until the first has committed, and gets the later epoch", async () => {
    const other = await schema.insertWorkspace();
    const before = await schema.epoch();
    const second = connect();
    const first = connect();
    await first`begin`;
    await disableRow(first, workspaceId);
    // Another row of another workspace: only the epoch is between them.
    const waiting = disableRow(second, other).then(() => "committed");
    await expect.poll(countWaiting, { timeout: 10_000 }).toBe(1);
    expect(await schema.epoch()).toBe(before);

    await first`commit`;
    expect(await waiting).toBe("committed");
    expect([await schema.workspaceStamp(workspaceId), await schema.workspaceStamp(other)]).toEqual([
      before + 1n,
      before + 2n,
    ]);
  });

  it("a second change goes on, with the same epoch, when the first is rolled back", async () => {
    const other = await schema.insertWorkspace();
    const before = await schema.epoch();
    const second = connect();
    const first = connect();
    await first`begin`;
    await disableRow(first, workspaceId);
    const waiting = disableRow(second, other).then(() => "committed");
    await expect.poll(countWaiting, { timeout: 10_000 }).toBe(1);
    await first`rollback`;
    expect(await waiting).toBe("committed");
    expect([await schema.workspaceStamp(workspaceId), await schema.workspaceStamp(other)]).toEqual([0n, before + 1n]);
  });

  it("a reader who polls by epoch misses none of many concurrent changes", async () => {
    const ids = await Promise.all(Array.from({ length: 40 }, schema.insertWorkspace));
    const seen = new Map<string, bigint>();
    let applied = await schema.epoch();
    const poll = async () => {
      const rows = await schema.sql<{ value: bigint; workspaceId: string | null; changedEpoch: bigint | null }[]>`
        select value, workspace_id, changed_epoch from epoch left join workspaces on changed_epoch > ${applied}`;
      for (const row of rows) {
        if (row.workspaceId !== null && row.changedEpoch !== null) seen.set(row.workspaceId, row.changedEpoch);
        applied = row.value;
      }
    };
    let writing = true;
    const polling = (async () => {
      while (writing) await poll();
    })();
    await Promise.all(ids.map((id) => disableRow(schema.sql, id)));
    writing = false;
    await polling;
    await poll();
    expect([...seen.keys()].sort()).toEqual([...ids].sort());
    expect(new Set(seen.values()).size).toBe(ids.length);
  });
});

/** A connection of the test's own, closed at its end, whatever became of its transaction. */
function connect() {
  const connection = openSql(schema.url, { max: 1, types: { bigint: postgres.BigInt } });
  onTestFinished(() => connection.end({ timeout: 1 }));
  return connection;
}

/** How many sessions of this database wait for a lock. */
async function countWaiting(): Promise<number> {
  const [row] = await schema.sql<{ count: number }[]>`
    select count(*)::int from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()`;
  return row?.count ?? 0;
}
