import { setTimeout as sleep } from "node:timers/promises";
import postgres from "postgres";
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from "vitest";
import { openSql } from "../../../commands/open-sql.js";
import { allRowsOf } from "../../../src/revocation/change-log.js";
import { type Change, createChangeStore } from "../../../src/revocation/change-store.js";
import { recentSnapshot } from "../../../src/revocation/lease.js";
import { type Snapshot, snapshotBefore } from "../../../src/revocation/snapshot.js";
import { openOwnPostgres } from "../../support/own-postgres.js";
import { disableRow, openSchema, type Schema } from "../../support/schema.js";

let schema: Schema;
let store: ReturnType<typeof createChangeStore>;

beforeAll(async () => {
  // A separate server: snapshots also list the transactions of other databases of the same server as in progress.
  const { url, close } = await openOwnPostgres();
  schema = await openSchema({ url, drop: close });
  store = createChangeStore(schema.db);
});
afterAll(() => schema.close());

/** A change poller that records the changes it received. */
async function startPoller() {
  const received: Change[] = [];
  let { snapshot } = await store.readTerms();
  return {
    received,
    get snapshot(): Snapshot {
      return snapshot;
    },
    async poll(): Promise<readonly Change[] | undefined> {
      const response = await store.changedSince(snapshot);
      snapshot = response.snapshot;
      received.push(...(response.changes ?? []));
      return response.changes;
    },
  };
}

describe("a poll for unseen changes", () => {
  it("returns a change once, with the id of its transaction", async () => {
    const workspaceId = await schema.insertWorkspace();
    const poller = await startPoller();
    await disableRow(schema.sql, workspaceId);
    const [row] =
      await schema.sql`select changed_xid::text::float8 as xid from workspaces where workspace_id = ${workspaceId}`;
    expect(await poller.poll()).toEqual([{ id: workspaceId, workspaceId, xid: row?.["xid"] }]);
    expect(await poller.poll()).toEqual([]);
  });

  it("misses no change of a transaction that began before others and commits after them", async () => {
    const [early, late] = [await schema.insertWorkspace(), await schema.insertWorkspace()];
    const poller = await startPoller();
    const open = connect();
    await open`begin`;
    await disableRow(open, early);
    // Another row of another workspace, so neither waits for a lock.
    await disableRow(schema.sql, late);
    expect((await poller.poll())?.map(({ id }) => id)).toEqual([late]);
    expect(poller.snapshot.inProgress.length).toBeGreaterThan(0);
    expect(await poller.poll()).toEqual([]);
    await open`commit`;
    expect((await poller.poll())?.map(({ id }) => id)).toEqual([early]);
    expect(await poller.poll()).toEqual([]);
  });

  it("misses none of many changes that overlap, are rolled back, or run beside one long transaction", async () => {
    const ids = await Promise.all(Array.from({ length: 60 }, schema.insertWorkspace));
    const poller = await startPoller();
    const longRunning = connect();
    await longRunning`begin`;
    await disableRow(longRunning, ids[0] ?? "");
    let writing = true;
    const polling = (async () => {
      while (writing) await poller.poll();
    })();
    const change = async (id: string, index: number) => {
      const own = connect();
      await sleep(Math.random() * 200);
      await own`begin`;
      await disableRow(own, id);
      await sleep(Math.random() * 200);
      await (index % 5 === 0 ? own`rollback` : own`commit`);
    };
    const others = ids.slice(1);
    await Promise.all(others.map(change));
    await longRunning`commit`;
    writing = false;
    await polling;
    await poller.poll();
    const committed = [ids[0], ...others.filter((_, index) => index % 5 !== 0)];
    expect(poller.received.map(({ id }) => id).sort()).toEqual(committed.sort());
  });

  it("returns a workspace as a whole if too many of its rows changed, and each row of other workspaces", async () => {
    const [large, small] = [await schema.insertWorkspace(), await schema.insertWorkspace()];
    const keyId = await schema.insertKey(small);
    await schema.sql`
      insert into keys (key_id, workspace_id, hash, start, enabled, permissions, created_at, updated_at)
      select 'key_many_' || number, ${large}, sha256(number::text::bytea), 'lk', true, '{}', now(), now()
      from generate_series(1, 12000) as number`;
    const poller = await startPoller();
    await schema.sql`update keys set enabled = false where workspace_id in (${large}, ${small})`;
    const changes = await poller.poll();
    expect(changes).toHaveLength(2);
    expect(changes).toEqual(
      expect.arrayContaining([
        { id: allRowsOf(large), workspaceId: large, xid: undefined },
        { id: keyId, workspaceId: small, xid: expect.any(Number) },
      ]),
    );
  });

  it("returns the workspace of a removed row, and nothing if the row had been marked as deleted before", async () => {
    const workspaceId = await schema.insertWorkspace();
    const [active, deleted] = [await schema.insertKey(workspaceId), await schema.insertKey(workspaceId)];
    await schema.sql`update keys set deleted_at = now() where key_id = ${deleted}`;
    const poller = await startPoller();
    await schema.sql`delete from keys where key_id = ${deleted}`;
    expect(await poller.poll()).toEqual([]);
    await schema.sql`delete from keys where key_id = ${active}`;
    expect(await poller.poll()).toEqual([{ id: allRowsOf(workspaceId), workspaceId, xid: undefined }]);
  });

  it("returns undefined if a row was removed whose deletion it has not seen", async () => {
    const workspaceId = await schema.insertWorkspace();
    const keyId = await schema.insertKey(workspaceId);
    const poller = await startPoller();
    await schema.sql`update keys set deleted_at = now() where key_id = ${keyId}`;
    await schema.sql`delete from keys where key_id = ${keyId}`;
    expect(await poller.poll()).toBeUndefined();
    expect(await poller.poll()).toEqual([]);
  });

  it("can start in the recent past, and returns all changes since then", async () => {
    const workspaceId = await schema.insertWorkspace();
    await disableRow(schema.sql, workspaceId);
    const { snapshot } = await store.readTerms();
    const { changes } = await store.changedSince(snapshotBefore(snapshot.xmin - 1));
    expect(changes?.map(({ id }) => id)).toEqual([workspaceId]);
    expect(recentSnapshot(snapshot).xmax).toBeLessThan(snapshot.xmin);
  });
});

// After a restore into a new server these are nearly all rows, too many for the first poll of a process.
it("a process that starts on a server with few transactions does not read the rows that were never changed", async () => {
  const own = await openSchema();
  onTestFinished(own.close);
  const [unchanged, changed] = [await own.insertWorkspace(), await own.insertWorkspace()];
  await disableRow(own.sql, changed);
  const recent = recentSnapshot({ xmin: 800, xmax: 800, inProgress: [] });
  const { changes } = await createChangeStore(own.db).changedSince(recent);
  expect(
    changes?.map(({ id }) => id),
    `not ${unchanged}`,
  ).toEqual([changed]);
});

// They would count as changes for ever.
it("stamps with higher transaction ids of another server, restored from a dump, are removed", async () => {
  const [foreign, own] = [await schema.insertWorkspace(), await schema.insertWorkspace()];
  await schema.sql`update workspaces set changed_xid = '9000000000' where workspace_id = ${foreign}`;
  await disableRow(schema.sql, own);
  const poller = await startPoller();
  expect((await poller.poll())?.map(({ id }) => id)).toEqual([foreign]);
  const timelineBefore = (await store.readTerms()).timeline;
  await store.removeForeignStamps();
  await poller.poll();
  expect(await poller.poll()).toEqual([]);
  expect(await schema.isWorkspaceStamped(own)).toBe(true);
  expect((await store.readTerms()).timeline, "a new timeline invalidates the entries in Redis").not.toBe(
    timelineBefore,
  );
  const timelineAfter = (await store.readTerms()).timeline;
  await store.removeForeignStamps();
  expect((await store.readTerms()).timeline).toBe(timelineAfter);
});

/** Opens a separate connection, which is closed when the test ends, even with an open transaction. */
function connect() {
  const connection = openSql(schema.url, { max: 1, types: { bigint: postgres.BigInt } });
  onTestFinished(() => connection.end({ timeout: 1 }));
  return connection;
}
