import { describe, expect, it } from "vitest";
import { allRowsOf, type ChangeLog, createChangeLog } from "../../../src/revocation/change-log.js";
import { type Snapshot, snapshotBefore } from "../../../src/revocation/snapshot.js";

const key = "key_1";
const identity = "id_1";
const workspaceId = "ws_1";

/** Sees the transactions up to this one, but for those that are still in progress. */
function upTo(xid: number, ...inProgress: number[]): Snapshot {
  return { xmin: Math.min(xid + 1, ...inProgress), xmax: xid + 1, inProgress };
}

const factAt = (snapshot: Snapshot, ...dependsOn: string[]) => ({
  dependsOn: dependsOn.length ? dependsOn : [key],
  workspaceId,
  snapshot,
});
const fact = (xid: number, ...dependsOn: string[]) => factAt(upTo(xid), ...dependsOn);

/** The changes from the beginning, row by row, each with its transaction. */
function learnt(present: Snapshot, ...changed: [string, number][]): ChangeLog {
  const changes = createChangeLog(snapshotBefore(1), "first");
  changes.append(
    present,
    changed.map(([id, xid]) => ({ id, xid })),
  );
  return changes;
}

describe("a fact is admitted if no known change is missing in it", () => {
  it("one that was read at or after the last change of its row", () => {
    const changes = learnt(upTo(9), [key, 5]);
    expect([4, 5, 6, 9].map((xid) => changes.isCurrent(fact(xid)))).toEqual([false, true, true, true]);
  });

  it("one of a row that never changed, however old within what is known", () => {
    expect(learnt(upTo(9), ["key_2", 5]).isCurrent(fact(0))).toBe(true);
  });

  it("one of several dependsOn, only if none of them has changed since", () => {
    const changes = learnt(upTo(9), [key, 3], [identity, 7]);
    expect([3, 6, 7].map((xid) => changes.isCurrent(fact(xid, key, identity)))).toEqual([false, false, true]);
  });

  it("the change that was learnt last counts, even of a transaction that began before others", () => {
    const changes = learnt(upTo(9, 4), [key, 8]);
    changes.append(upTo(9), [{ id: key, xid: 4 }]);
    expect(changes.isCurrent(factAt(upTo(9, 4)))).toBe(false);
    expect(changes.isCurrent(fact(9))).toBe(true);
  });

  it("one that was read while the change was in progress lacks it, whatever has committed since", () => {
    const changes = learnt(upTo(20), [key, 5]);
    expect(changes.isCurrent(factAt(upTo(19, 5)))).toBe(false);
    expect(changes.isCurrent(factAt(upTo(19, 6)))).toBe(true);
  });

  it("one that was read later than anything known here: nothing can be missing in it", () => {
    expect(learnt(upTo(9), [key, 5]).isCurrent(fact(12))).toBe(true);
  });
});

describe("a change of a whole workspace", () => {
  it("outdates all that was read of it before it was learnt, and nothing of other workspaces", () => {
    const changes = createChangeLog(snapshotBefore(1), "first");
    changes.append(upTo(9), [{ id: allRowsOf(workspaceId), xid: undefined }]);
    expect([5, 8, 9].map((xid) => changes.isCurrent(fact(xid)))).toEqual([false, false, true]);
    expect(changes.isCurrent({ ...fact(5), workspaceId: "ws_2" })).toBe(true);
  });
});

describe("what lies before all that is known is not trusted", () => {
  it("before the beginning", () => {
    const changes = createChangeLog(upTo(100), "first");
    expect([99, 100].map((xid) => changes.isCurrent(fact(xid)))).toEqual([false, true]);
    expect(changes.isCurrent(factAt(upTo(200, 100)))).toBe(false);
  });

  it("before a change that was forgotten because there were too many: of any row, for nobody knows whose it was", () => {
    const changes = createChangeLog(snapshotBefore(1), "first", 3);
    for (const xid of [1, 2, 3, 4, 5]) changes.append(upTo(xid), [{ id: `key_${xid}`, xid }]);
    // Those of transactions 1 and 2 are forgotten, so what was read before 2 might lack one of them.
    expect([0, 1, 2].map((xid) => changes.isCurrent(fact(xid, "key_9")))).toEqual([false, false, true]);
    expect([2, 3].map((xid) => changes.isCurrent(fact(xid, "key_3")))).toEqual([false, true]);
  });

  it("a transaction that runs for long keeps nothing from being trusted, as long as it has changed nothing", () => {
    const changes = createChangeLog(snapshotBefore(1), "first", 3);
    for (const xid of [3, 4, 5, 6, 7]) changes.append(upTo(xid, 2), [{ id: `key_${xid}`, xid }]);
    expect(changes.isCurrent(factAt(upTo(7, 2)))).toBe(true);
    expect(changes.isCurrent(factAt(upTo(3, 2)))).toBe(false);
    changes.append(upTo(8), [{ id: key, xid: 2 }]);
    expect(changes.isCurrent(factAt(upTo(7, 2)))).toBe(false);
    expect(changes.isCurrent(fact(8))).toBe(true);
  });

  it("a row that changes again and again is remembered once, and forgets nobody else", () => {
    const changes = createChangeLog(snapshotBefore(1), "first", 2);
    changes.append(upTo(1), [{ id: "key_2", xid: 1 }]);
    for (let xid = 2; xid <= 50; xid++) changes.append(upTo(xid), [{ id: key, xid }]);
    expect(changes.isCurrent(fact(0, "key_3"))).toBe(true);
    expect(changes.isCurrent(fact(49))).toBe(false);
  });

  it("what will soon be older than all that is known is told before", () => {
    const changes = createChangeLog(snapshotBefore(1), "first", 4);
    const read = upTo(1);
    const learnOne = (xid: number) => changes.append(upTo(xid), [{ id: `key_${xid}`, xid }]);
    learnOne(1);
    expect(changes.isAging(read)).toBe(false);
    for (const xid of [2, 3, 4]) learnOne(xid);
    expect(changes.isAging(read)).toBe(true);
    expect(changes.isCurrent(factAt(read)), "while it is still trusted").toBe(true);
    expect(changes.isAging(changes.present)).toBe(false);
  });
});

describe("starting over", () => {
  it("forgets everything before the present, and may go on in another history", () => {
    const changes = learnt(upTo(9), [key, 5]);
    changes.reset(upTo(20), "second");
    expect(changes).toMatchObject({ present: upTo(20), timeline: "second" });
    expect([9, 19, 20].map((xid) => changes.isCurrent(fact(xid)))).toEqual([false, false, true]);
  });

  it("goes on with a snapshot that lies before the last one, as that of a restored database does", () => {
    const changes = learnt(upTo(9), [key, 8]);
    changes.reset(upTo(4), "second");
    expect(changes.present).toEqual(upTo(4));
    expect(changes.isCurrent(fact(4))).toBe(true);
    changes.append(upTo(5), [{ id: key, xid: 5 }]);
    expect([4, 5].map((xid) => changes.isCurrent(fact(xid)))).toEqual([false, true]);
  });

  it("what is learnt in between does not begin another history", () => {
    const changes = learnt(upTo(9), [key, 5]);
    changes.append(upTo(10), []);
    expect(changes).toMatchObject({ present: upTo(10), timeline: "first" });
  });
});
