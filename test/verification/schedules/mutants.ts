import { expired, expiredChange, overdue } from "./violations.js";

/** A fault in the protocol, made by replacing a text in one file. Its name says what no longer holds. */
export interface Mutant {
  readonly name: string;
  /** The path, relative to the project folder. */
  readonly file: string;
  /** Must occur exactly once. */
  readonly text: string;
  readonly replacement: string;
  /** The expected violation, if it is not an outdated answer. */
  readonly violation?: string;
}

const lease = "src/revocation/lease.ts";
const leaseTime = "src/revocation/lease-time.ts";
const changeLog = "src/revocation/change-log.ts";
const tieredCache = "src/revocation/tiered-cache.ts";
const snapshot = "src/revocation/snapshot.ts";
const keyCache = "src/revocation/key-cache.ts";
const pipeline = "src/rpc/pipeline.ts";
const call = "src/call/call.ts";
const verify = "src/keys/verify.ts";
const postgres = "test/verification/schedules/postgres.ts";

export const mutants: readonly Mutant[] = [
  {
    name: "the keys of a workspace that was deleted count as those of an enabled one",
    file: keyCache,
    text: "return state && { key, workspaceEnabled: state.enabled };\n  }\n\n  return {",
    replacement: "return { key, workspaceEnabled: state?.enabled ?? true };\n  }\n\n  return {",
  },
  {
    name: "the lease time is raised before changes wait for that long",
    file: postgres,
    text: "(waitMs >= leaseMs ? { leaseMs } : undefined)",
    replacement: "({ leaseMs })",
  },
  {
    name: "the wait of changes is lowered before the longer leases have ended",
    file: leaseTime,
    text: "await waitOut(set.waitMs, clock);",
    replacement: "",
  },
  {
    name: "the wait of changes is lowered although the lease time was raised again meanwhile",
    file: postgres,
    text: "row.version === version ?",
    replacement: "true ?",
  },
  {
    name: "a change uses the wait that was known before it",
    file: lease,
    text: "while (waitMs > waitedMs)",
    replacement: "while (false)",
  },
  {
    name: "changes are acknowledged at once",
    file: lease,
    text: "await waitOut(waitedMs, clock);",
    replacement: "",
  },
  {
    name: "changes are acknowledged after one lease time, as if all clocks had the same speed",
    file: lease,
    text: "(leaseMs + maxDriftMs) * maxSpeedRatio",
    replacement: "leaseMs",
  },
  {
    name: "changes are acknowledged as if the speeds of clocks differed by at most a hundredth",
    file: lease,
    text: "(leaseMs + maxDriftMs) * maxSpeedRatio",
    replacement: "(leaseMs + maxDriftMs) * 1.01",
  },
  {
    name: "changes are acknowledged as if every suspension were noticed",
    file: lease,
    text: "(leaseMs + maxDriftMs) * maxSpeedRatio",
    replacement: "leaseMs * maxSpeedRatio",
  },
  {
    name: "the wait of changes is measured by the monotonic clock alone",
    file: lease,
    text: "Math.min(clock.monotonic() - begunAt, wall - wallBegunAt)",
    replacement: "(clock.monotonic() - begunAt)",
  },
  {
    name: "expiry is compared with the replica's clock",
    file: lease,
    text: "return new Date(lastAnswer.time + passedMs * maxSpeedRatio);",
    replacement: "return new Date(clock.wall());",
    violation: expired,
  },
  {
    name: "an immediate end is a time, not a state",
    file: verify,
    text: "return ended || (",
    replacement: "return ended && false || (",
  },
  {
    name: "the lease is counted from the answer, not from the sending of the poll",
    file: lease,
    text: "validUntil = sentAt + leaseMs",
    replacement: "validUntil = clock.monotonic() + leaseMs",
  },
  {
    name: "the lease is checked with the clock reading of the previous call",
    file: lease,
    text: `function remaining(): number {
    const now = clock.monotonic();
    const drift = Math.abs(clock.wall() - now - offset);`,
    replacement: `let remembered = [0, 0];
  function remaining(): number {
    const [now, wall] = remembered;
    remembered = [clock.monotonic(), clock.wall()];
    const drift = Math.abs(wall - now - offset);`,
  },
  {
    name: "the lease is extended before the changes are applied",
    file: lease,
    text: "const found = await source.changedSince(since);",
    replacement: `const found = await source.changedSince(since);
    offset = wall - sentAt;
    validUntil = sentAt + leaseMs;
    await clock.sleep(0);`,
  },
  {
    name: "a poll in flight counts as sent after the call began",
    file: lease,
    text: "await inFlight?.catch(() => {});\n    if (remaining() > 0) return;",
    replacement: "if (inFlight) return inFlight;",
  },
  {
    name: "the suspension of a machine is not detected",
    file: lease,
    text: "drift > maxDriftMs ? 0 : ",
    replacement: "",
  },
  {
    name: "a crash of the database does not begin a timeline",
    file: postgres,
    text: 'timeline = "";',
    replacement: "",
  },
  {
    name: "changes are read before the snapshot",
    file: postgres,
    text: "const found = {\n          snapshot: snapshot(),",
    replacement: 'await step("a second snapshot");\n        const found = {\n          snapshot: snapshot(),',
  },
  {
    name: "a poll asks for higher transaction ids only, without those that were in progress",
    file: postgres,
    text: "(sees(seen, xid) ? [] : [{ id, workspaceId, xid }])",
    replacement: "(xid < seen.xmax ? [] : [{ id, xid }])",
  },
  {
    name: "a snapshot includes transactions that were in progress",
    file: snapshot,
    text: "(xid < xmax && !inProgress.includes(xid))",
    replacement: "xid < xmax",
  },
  {
    name: "the oldest changes are forgotten, and the horizon stays",
    file: changeLog,
    text: "lastChange.delete(id);\n        horizon = evicted.batch.end;",
    replacement: "lastChange.delete(id);",
  },
  {
    name: "a read value is cached with the snapshot of its arrival",
    file: tieredCache,
    text: "if (!changeLog.isCurrent(versioned)) return false;",
    replacement: "versioned = { ...versioned, snapshot: changeLog.present };",
  },
  {
    name: "cached values are used without the fence",
    file: tieredCache,
    text: "if (!changeLog.isCurrent(versioned)) {",
    replacement: "if (false) {",
  },
  {
    name: "a cached value that was checked once is used until the next timeline",
    file: changeLog,
    text: "version += 1;\n      appended += changes.length;",
    replacement: "appended += changes.length;",
  },
  {
    name: "entries of Redis are used without the fence",
    file: tieredCache,
    text: "if (!includes(changeLog.present, entry.snapshot) || !changeLog.isCurrent(entry)) return undefined;",
    replacement: "return { ...entry, snapshot: changeLog.present };",
  },
  {
    name: "the result of another call's fetch is used without the fence",
    file: tieredCache,
    text: "versioned !== undefined && changeLog.isCurrent(versioned)",
    replacement: "versioned !== undefined",
  },
  {
    name: "Redis is read without a lease",
    file: keyCache,
    text: "await lease.ensure();\n    const cachedKey = keys.peek(hash);",
    replacement: "const cachedKey = lease.remaining() > 0 ? keys.peek(hash) : undefined;",
  },
  {
    name: "cached values are used without a lease",
    file: keyCache,
    text: "const key = lease.remaining() > 0 ? keys.peek(hash) : undefined;",
    replacement: "const key = keys.peek(hash);",
  },
  {
    name: "a caller is authenticated by its headers, and not checked again",
    file: pipeline,
    text: "chain(recheck(call, caller), (currentCaller) => {",
    replacement: "chain(caller, (currentCaller) => {",
  },
  {
    name: "the statement of a change checks only the expiry of its caller",
    file: postgres,
    text: "return workspaceEnabled && !workspaceDeleted && keyEnabled && !keyDeleted && !isExpired;",
    replacement: "return keyEnded || !isExpired;",
  },
  {
    name: "the statement of a change does not check the expiry of its caller",
    file: postgres,
    text: "const isExpired = keyEnded || (keyExpiresAt !== null && keyExpiresAt <= time);",
    replacement: "const isExpired = keyEnded;",
    violation: expiredChange,
  },
  {
    name: "a call begins after its deadline",
    file: call,
    text: "if (performance.now() >= call.deadline) throw deadlineExceeded();",
    replacement: "",
    violation: overdue,
  },
];
