import { expired, overdue } from "./verdict.js";

/** A way to break the protocol: in one file, another text stands instead of one. Its name says what no longer holds. */
export interface Mutant {
  readonly name: string;
  /** Its path below the folder of the project. */
  readonly file: string;
  /** It must be there exactly once. */
  readonly text: string;
  readonly replacement: string;
  /** What is complained of, if it is not an outdated answer. */
  readonly complaint?: string;
}

const lease = "src/revocation/lease.ts";
const changeLease = "src/revocation/lease-time.ts";
const changes = "src/revocation/change-log.ts";
const shelf = "src/revocation/tiered-cache.ts";
const snapshot = "src/revocation/snapshot.ts";
const holdings = "src/revocation/key-cache.ts";
const pipeline = "src/rpc/pipeline.ts";
const call = "src/call/call.ts";
const verify = "src/keys/verify.ts";
const postgres = "test/verification/schedules/postgres.ts";

export const mutants: readonly Mutant[] = [
  {
    name: "leases are raised whether or not changes wait for them",
    file: postgres,
    text: "(waitMs >= leaseMs ? { leaseMs } : undefined)",
    replacement: "({ leaseMs })",
  },
  {
    name: "changes wait for less before the longer leases are over",
    file: changeLease,
    text: "await waitOut(set.waitMs, clock);",
    replacement: "",
  },
  {
    name: "changes wait for less although leases were raised again meanwhile",
    file: postgres,
    text: "row.version === version ?",
    replacement: "true ?",
  },
  {
    name: "a change waits for as long as was known before it",
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
    name: "changes are acknowledged after one lease, as if all clocks were alike",
    file: lease,
    text: "(leaseMs + mostDriftMs) * mostSpeedRatio",
    replacement: "leaseMs",
  },
  {
    name: "changes are acknowledged as if clocks differed in speed by a hundredth at most",
    file: lease,
    text: "(leaseMs + mostDriftMs) * mostSpeedRatio",
    replacement: "(leaseMs + mostDriftMs) * 1.01",
  },
  {
    name: "changes are acknowledged as if every suspension were noticed",
    file: lease,
    text: "(leaseMs + mostDriftMs) * mostSpeedRatio",
    replacement: "leaseMs * mostSpeedRatio",
  },
  {
    name: "changes wait by the monotonic clock alone",
    file: lease,
    text: "Math.min(clock.monotonic() - begunAt, wall - wallBegunAt)",
    replacement: "(clock.monotonic() - begunAt)",
  },
  {
    name: "expiry is judged by the replica's clock",
    file: lease,
    text: "return new Date(told.time + Math.max(monotonicMs, wallMs) * mostSpeedRatio);",
    replacement: "return new Date(clock.wall());",
    complaint: expired,
  },
  {
    name: "an immediate end is a time, not a state",
    file: verify,
    text: "return ended || (",
    replacement: "return ended && false || (",
  },
  {
    name: "the lease is counted from the answer",
    file: lease,
    text: "validUntil = sentAt + leaseMs",
    replacement: "validUntil = clock.monotonic() + leaseMs",
  },
  {
    name: "the lease is judged by the time of the call before",
    file: lease,
    text: `function timeLeft(): number {
    const now = clock.monotonic();
    const drift = Math.abs(clock.wall() - now - offset);`,
    replacement: `let remembered = [0, 0];
  function timeLeft(): number {
    const [now, wall] = remembered;
    remembered = [clock.monotonic(), clock.wall()];
    const drift = Math.abs(wall - now - offset);`,
  },
  {
    name: "the lease is extended before the changes are learnt",
    file: lease,
    text: "const found = await source.changedSince(since);",
    replacement: `const found = await source.changedSince(since);
    offset = wall - sentAt;
    validUntil = sentAt + leaseMs;
    await clock.sleep(0);`,
  },
  {
    name: "a question under way is believed to have been sent in time",
    file: lease,
    text: "await underWay?.catch(() => {});\n    if (timeLeft() > 0) return;",
    replacement: "if (underWay) return underWay;",
  },
  {
    name: "a suspended machine goes unnoticed",
    file: lease,
    text: "drift > mostDriftMs ? 0 : ",
    replacement: "",
  },
  {
    name: "changes are read before the snapshot",
    file: postgres,
    text: "const found = {\n          snapshot: snapshot(),",
    replacement: 'await step("a second snapshot");\n        const found = {\n          snapshot: snapshot(),',
  },
  {
    name: "changes are asked for by their numbers alone, without those that were in progress",
    file: postgres,
    text: "(sees(seen, xid) ? [] : [{ id, xid }])",
    replacement: "(xid < seen.xmax ? [] : [{ id, xid }])",
  },
  {
    name: "a transaction that was in progress counts as seen",
    file: snapshot,
    text: "(xid < xmax && !inProgress.includes(xid))",
    replacement: "xid < xmax",
  },
  {
    name: "the oldest changes are forgotten without a trace",
    file: changes,
    text: "lastChange.delete(id);\n        horizon = foundIn;",
    replacement: "lastChange.delete(id);",
  },
  {
    name: "what arrives is held as of its arrival",
    file: shelf,
    text: "if (!changes.isCurrent(fact)) return false;",
    replacement: "fact = { ...fact, snapshot: changes.present };",
  },
  {
    name: "what is held is used whatever has changed",
    file: shelf,
    text: "if (!changes.isCurrent(fact)) {",
    replacement: "if (false) {",
  },
  {
    name: "what was checked once is used until the next history",
    file: changes,
    text: "version += 1;\n      learnt += changes.length;",
    replacement: "learnt += changes.length;",
  },
  {
    name: "Redis is believed",
    file: shelf,
    text: "if (fact === undefined || !includes(changes.present, fact.snapshot) || !changes.isCurrent(fact)) return undefined;",
    replacement: "if (fact === undefined) return undefined;\n    return { ...fact, snapshot: changes.present };",
  },
  {
    name: "a fetch that somebody else began is believed",
    file: shelf,
    text: "fact !== undefined && changes.isCurrent(fact)",
    replacement: "fact !== undefined",
  },
  {
    name: "Redis is asked without a lease",
    file: holdings,
    text: "await lease.ensure();\n    const heldKey = keys.peek(hash);",
    replacement: "const heldKey = lease.remaining() > 0 ? keys.peek(hash) : undefined;",
  },
  {
    name: "what is held is used without a lease",
    file: holdings,
    text: "const key = lease.remaining() > 0 ? keys.peek(hash) : undefined;",
    replacement: "const key = keys.peek(hash);",
  },
  {
    name: "a caller is checked when its headers are there, and never again",
    file: pipeline,
    text: "chain(recheck(call, caller), (currentCaller) => {",
    replacement: "chain(caller, (currentCaller) => {",
  },
  {
    name: "a change is made whoever its caller is by then",
    file: postgres,
    text: "if (!isUsable(present())) throw outdatedCaller;",
    replacement: "",
  },
  {
    name: "a call is begun whose deadline has passed",
    file: call,
    text: "if (performance.now() >= call.deadline) throw deadlineExceeded();",
    replacement: "",
    complaint: overdue,
  },
];
