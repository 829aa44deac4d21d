import { describe, expect, it } from "vitest";
import { allRowsOf, type ChangeLog, createChangeLog } from "../../../src/revocation/change-log.js";
import { type Snapshot, snapshotBefore } from "../../../src/revocation/snapshot.js";

const key = "key_1";
const identity = "id_1";
const workspaceId = "ws_1";

/** Includes the transactions up to this one, except those still in progress. */
function upTo(xid: number, ...inProgress: number[]): Snapshot {
  return { xmin: Math.min(xid + 1, ...inProgress), xmax: xid + 1, inProgress };
}

const versionedAt = (snapshot: Snapshot, ...dependsOn: string[]) => ({
  dependsOn: dependsOn.length ? dependsOn : [key],
  workspaceId,
  snapshot,
});
const versioned = (xid: number, ...dependsOn: string[]) => versionedAt(upTo(xid), ...dependsOn);

/** A change log with these changes since the beginning: the row and the transaction of each. */
function logOf(present: Snapshot, ...changed: [string, number][]): ChangeLog {
  const changeLog = createChangeLog(snapshotBefore(1), "first");
  changeLog.append(
    present,
    changed.map(([id, xid]) => ({ id, xid })),
  );
  return changeLog;
}

describe("a versioned value is current if no known change is missing in it", () => {
  it("a value that was read at or after the last change of its row is current", () => {
    const changeLog = logOf(upTo(9), [key, 5]);
    expect([4, 5, 6, 9].map((xid) => changeLog.isCurrent(versioned(xid)))).toEqual([false, true, true, true]);
  });

  it("a value of a row that never changed is current at any age after the horizon", () => {
    expect(logOf(upTo(9), ["key_2", 5]).isCurrent(versioned(0))).toBe(true);
  });

  it("a value of several rows is current only if none of them has changed since", () => {
    const changeLog = logOf(upTo(9), [key, 3], [identity, 7]);
    expect([3, 6, 7].map((xid) => changeLog.isCurrent(versioned(xid, key, identity)))).toEqual([false, false, true]);
  });

  it("the change that was appended last decides, even if its transaction began before others", () => {
    const changeLog = logOf(upTo(9, 4), [key, 8]);
    changeLog.append(upTo(9), [{ id: key, xid: 4 }]);
    expect(changeLog.isCurrent(versionedAt(upTo(9, 4)))).toBe(false);
    expect(changeLog.isCurrent(versioned(9))).toBe(true);
  });

  it("a value that was read while the change was in progress lacks it, whatever has committed since", () => {
    const changeLog = logOf(upTo(20), [key, 5]);
    expect(changeLog.isCurrent(versionedAt(upTo(19, 5)))).toBe(false);
    expect(changeLog.isCurrent(versionedAt(upTo(19, 6)))).toBe(true);
  });

  it("a value that was read after the present snapshot is current: no known change can be missing in it", () => {
    expect(logOf(upTo(9), [key, 5]).isCurrent(versioned(12))).toBe(true);
  });
});

describe("a change of a whole workspace", () => {
  it("outdates every value of that workspace that was read before it, and none of other workspaces", () => {
    const changeLog = createChangeLog(snapshotBefore(1), "first");
    changeLog.append(upTo(9), [{ id: allRowsOf(workspaceId), xid: undefined }]);
    expect([5, 8, 9].map((xid) => changeLog.isCurrent(versioned(xid)))).toEqual([false, false, true]);
    expect(changeLog.isCurrent({ ...versioned(5), workspaceId: "ws_2" })).toBe(true);
  });
});

describe("a value from before the horizon is never current", () => {
  it("from before the beginning of the change log", () => {
    const changeLog = createChangeLog(upTo(100), "first");
    expect([99, 100].map((xid) => changeLog.isCurrent(versioned(xid)))).toEqual([false, true]);
    expect(changeLog.isCurrent(versionedAt(upTo(200, 100)))).toBe(false);
  });

  it("from before a change that was evicted: of any row, because the row of that change is forgotten", () => {
    const changeLog = createChangeLog(snapshotBefore(1), "first", 3);
    for (const xid of [1, 2, 3, 4, 5]) changeLog.append(upTo(xid), [{ id: `key_${xid}`, xid }]);
    // The changes of transactions 1 and 2 are forgotten. A value that was read before 2 might lack one of them.
    expect([0, 1, 2].map((xid) => changeLog.isCurrent(versioned(xid, "key_9")))).toEqual([false, false, true]);
    expect([2, 3].map((xid) => changeLog.isCurrent(versioned(xid, "key_3")))).toEqual([false, true]);
  });

  it("an eviction moves the horizon by at most a hundredth of the capacity", () => {
    const changeLog = createChangeLog(snapshotBefore(1), "first", 1_000);
    const appendOne = (xid: number) => changeLog.append(upTo(xid), [{ id: `key_${xid}`, xid }]);
    for (let xid = 1; xid <= 1_000; xid++) appendOne(xid);
    expect(changeLog.isCurrent(versioned(0, "key_9000"))).toBe(true);
    appendOne(1_001);
    expect([0, 9, 10].map((xid) => changeLog.isCurrent(versioned(xid, "key_9000")))).toEqual([false, false, true]);
    for (let xid = 1_002; xid <= 1_010; xid++) appendOne(xid);
    expect(changeLog.isCurrent(versioned(10, "key_9000"))).toBe(true);
  });

  it("a long-running transaction outdates no value before one of its own changes is appended", () => {
    const changeLog = createChangeLog(snapshotBefore(1), "first", 3);
    for (const xid of [3, 4, 5, 6, 7]) changeLog.append(upTo(xid, 2), [{ id: `key_${xid}`, xid }]);
    expect(changeLog.isCurrent(versionedAt(upTo(7, 2)))).toBe(true);
    expect(changeLog.isCurrent(versionedAt(upTo(3, 2)))).toBe(false);
    changeLog.append(upTo(8), [{ id: key, xid: 2 }]);
    expect(changeLog.isCurrent(versionedAt(upTo(7, 2)))).toBe(false);
    expect(changeLog.isCurrent(versioned(8))).toBe(true);
  });

  it("a row that changes repeatedly takes one place, and evicts no other change", () => {
    const changeLog = createChangeLog(snapshotBefore(1), "first", 2);
    changeLog.append(upTo(1), [{ id: "key_2", xid: 1 }]);
    for (let xid = 2; xid <= 50; xid++) changeLog.append(upTo(xid), [{ id: key, xid }]);
    expect(changeLog.isCurrent(versioned(0, "key_3"))).toBe(true);
    expect(changeLog.isCurrent(versioned(49))).toBe(false);
  });

  it("a value that will soon be behind the horizon is reported as aging, while it is still current", () => {
    const changeLog = createChangeLog(snapshotBefore(1), "first", 4);
    const read = upTo(1);
    const appendOne = (xid: number) => changeLog.append(upTo(xid), [{ id: `key_${xid}`, xid }]);
    appendOne(1);
    expect(changeLog.isAging(read)).toBe(false);
    for (const xid of [2, 3, 4]) appendOne(xid);
    expect(changeLog.isAging(read)).toBe(true);
    expect(changeLog.isCurrent(versionedAt(read)), "while it is still current").toBe(true);
    expect(changeLog.isAging(changeLog.present)).toBe(false);
  });
});

describe("a reset of the change log", () => {
  it("forgets everything before the present, and can begin another timeline", () => {
    const changeLog = logOf(upTo(9), [key, 5]);
    changeLog.reset(upTo(20), "second");
    expect(changeLog).toMatchObject({ present: upTo(20), timeline: "second" });
    expect([9, 19, 20].map((xid) => changeLog.isCurrent(versioned(xid)))).toEqual([false, false, true]);
  });

  it("accepts a snapshot from before the last one, as after the restore of a database", () => {
    const changeLog = logOf(upTo(9), [key, 8]);
    changeLog.reset(upTo(4), "second");
    expect(changeLog.present).toEqual(upTo(4));
    expect(changeLog.isCurrent(versioned(4))).toBe(true);
    changeLog.append(upTo(5), [{ id: key, xid: 5 }]);
    expect([4, 5].map((xid) => changeLog.isCurrent(versioned(xid)))).toEqual([false, true]);
  });

  it("appended changes do not begin another timeline", () => {
    const changeLog = logOf(upTo(9), [key, 5]);
    changeLog.append(upTo(10), []);
    expect(changeLog).toMatchObject({ present: upTo(10), timeline: "first" });
  });
});
