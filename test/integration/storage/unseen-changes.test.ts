import { setTimeout as sleep } from "node:timers/promises";
import postgres from "postgres";
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from "vitest";
import { openSql } from "../../../commands/open-sql.js";
import { allRowsOf } from "../../../src/revocation/change-log.js";
import { type Change, createChangesStore } from "../../../src/revocation/change-store.js";
import { recentSnapshot } from "../../../src/revocation/lease.js";
import { type Snapshot, snapshotBefore } from "../../../src/revocation/snapshot.js";
import { openOwnPostgres } from "../../support/own-postgres.js";
import { disableRow, openSchema, type Schema } from "../../support/schema.js";

let schema: Schema;
let store: ReturnType<typeof createChangesStore>;

beforeAll(async () => {
  // One of its own: transactions of other databases on the server are in progress for it, too.
  const { url, close } = await openOwnPostgres();
  schema = await openSchema({ url, drop: close });
  store = createChangesStore(schema.db);
});
afterAll(() => schema.close());

/** Asks again and again, and remembers what it was told. */
async function follow() {
  const told: Change[] = [];
  let { snapshot } = await store.readTerms();
  return {
    told,
    get snapshot(): Snapshot {
      return snapshot;
    },
    async ask(): Promise<readonly Change[] | undefined> {
      const { changes, snapshot: found } = await store.changedSince(snapshot);
      snapshot = found;
      told.push(...(changes ?? []));
      return changes;
    },
  };
}

describe("whoever asks for what it has not seen yet", () => {
  it("is told of a change once, with the transaction that made it", async () => {
    const workspaceId = await schema.insertWorkspace();
    const follower = await follow();
    await disableRow(schema.sql, workspaceId);
    const [row] =
      await schema.sql`select changed_xid::text::float8 as xid from workspaces where workspace_id = ${workspaceId}`;
    expect(await follower.ask()).toEqual([{ id: workspaceId, xid: row?.["xid"] }]);
    expect(await follower.ask()).toEqual([]);
  });

  it("misses no change of a transaction that began before others and commits after them", async () => {
    const [early, late] = [await schema.insertWorkspace(), await schema.insertWorkspace()];
    const follower = await follow();
    const open = connect();
    await open`begin`;
    await disableRow(open, early);
    // Another row of another workspace: nobody waits.
    await disableRow(schema.sql, late);
    expect((await follower.ask())?.map(({ id }) => id)).toEqual([late]);
    expect(follower.snapshot.inProgress.length).toBeGreaterThan(0);
    expect(await follower.ask()).toEqual([]);
    await open`commit`;
    expect((await follower.ask())?.map(({ id }) => id)).toEqual([early]);
    expect(await follower.ask()).toEqual([]);
  });

  it("misses none of many changes that overlap, are rolled back, or wait for one that runs all the time", async () => {
    const ids = await Promise.all(Array.from({ length: 60 }, schema.insertWorkspace));
    const follower = await follow();
    const longest = connect();
    await longest`begin`;
    await disableRow(longest, ids[0] ?? "");
    let writing = true;
    const asking = (async () => {
      while (writing) await follower.ask();
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
    await longest`commit`;
    writing = false;
    await asking;
    await follower.ask();
    const committed = [ids[0], ...others.filter((_, index) => index % 5 !== 0)];
    expect(follower.told.map(({ id }) => id).sort()).toEqual(committed.sort());
  });

  it("is told of a workspace as a whole where too many of its rows have changed, and of each row of the others", async () => {
    const [large, small] = [await schema.insertWorkspace(), await schema.insertWorkspace()];
    const keyId = await schema.insertKey(small);
    await schema.sql`
      insert into keys (key_id, workspace_id, hash, start, enabled, permissions, created_at, updated_at)
      select 'key_many_' || number, ${large}, sha256(number::text::bytea), 'lk', true, '{}', now(), now()
      from generate_series(1, 12000) as number`;
    const follower = await follow();
    await schema.sql`update keys set enabled = false where workspace_id in (${large}, ${small})`;
    const changes = await follower.ask();
    expect(changes).toHaveLength(2);
    expect(changes).toEqual(
      expect.arrayContaining([
        { id: allRowsOf(large), xid: undefined },
        { id: keyId, xid: expect.any(Number) },
      ]),
    );
  });

  it("is told of the workspace of a row that was removed, and of nothing more if the row was deleted long before", async () => {
    const workspaceId = await schema.insertWorkspace();
    const [living, deleted] = [await schema.insertKey(workspaceId), await schema.insertKey(workspaceId)];
    await schema.sql`update keys set deleted_at = now() where key_id = ${deleted}`;
    const follower = await follow();
    await schema.sql`delete from keys where key_id = ${deleted}`;
    expect(await follower.ask()).toEqual([]);
    await schema.sql`delete from keys where key_id = ${living}`;
    expect(await follower.ask()).toEqual([{ id: allRowsOf(workspaceId), xid: undefined }]);
  });

  it("learns that it cannot be told, if a row was removed whose deletion it has not seen", async () => {
    const workspaceId = await schema.insertWorkspace();
    const keyId = await schema.insertKey(workspaceId);
    const follower = await follow();
    await schema.sql`update keys set deleted_at = now() where key_id = ${keyId}`;
    await schema.sql`delete from keys where key_id = ${keyId}`;
    expect(await follower.ask()).toBeUndefined();
    expect(await follower.ask()).toEqual([]);
  });

  it("can begin in the recent past, and is told all that was changed since", async () => {
    const workspaceId = await schema.insertWorkspace();
    await disableRow(schema.sql, workspaceId);
    const { snapshot } = await store.readTerms();
    const { changes } = await store.changedSince(snapshotBefore(snapshot.xmin - 1));
    expect(changes?.map(({ id }) => id)).toEqual([workspaceId]);
    expect(recentSnapshot(snapshot).xmax).toBeLessThan(snapshot.xmin);
  });
});

it("stamps of a server that was further on, which a dump has brought, are removed: they would count as changed for ever", async () => {
  const [foreign, own] = [await schema.insertWorkspace(), await schema.insertWorkspace()];
  await schema.sql`update workspaces set changed_xid = '9000000000' where workspace_id = ${foreign}`;
  await disableRow(schema.sql, own);
  const follower = await follow();
  expect((await follower.ask())?.map(({ id }) => id)).toEqual([foreign]);
  const { history } = await store.readTerms();
  await store.removeForeignStamps();
  await follower.ask();
  expect(await follower.ask()).toEqual([]);
  expect(await schema.isWorkspaceStamped(own)).toBe(true);
  expect((await store.readTerms()).history, "what Redis kept is worth nothing").not.toBe(history);
  const { history: begun } = await store.readTerms();
  await store.removeForeignStamps();
  expect((await store.readTerms()).history).toBe(begun);
});

/** A connection of the test's own, closed at its end, whatever became of its transaction. */
function connect() {
  const connection = openSql(schema.url, { max: 1, types: { bigint: postgres.BigInt } });
  onTestFinished(() => connection.end({ timeout: 1 }));
  return connection;
}
