import { type Authentication, createAuthentication } from "../../../src/auth/authenticate.js";
import { createDelegation, type Delegation } from "../../../src/delegation/delegation.js";
import { createChangeLog } from "../../../src/revocation/change-log.js";
import type { ChangeSource } from "../../../src/revocation/change-poller.js";
import { createKeyCache, type KeyCache, type KeyCacheSources } from "../../../src/revocation/key-cache.js";
import { createLease } from "../../../src/revocation/lease.js";
import { createLookupLimit } from "../../../src/revocation/lookup-limit.js";
import type { Snapshot } from "../../../src/revocation/snapshot.js";
import type { Cache } from "../../../src/storage/redis/client.js";
import type { Tally } from "./tally.js";
import type { MachineClock } from "./time.js";

/** One process with its clocks. */
export interface Replica extends KeyCache {
  readonly name: string;
  readonly authentication: Authentication;
  readonly clock: MachineClock;
  readonly delegation: Delegation;
  databaseTime(): Date;
  /** The number of its reads of a key or a workspace from PostgreSQL. */
  readonly reads: number;
  /** The number of its hits in Redis. */
  readonly hits: number;
  renewLease(): Promise<void>;
}

export interface Machine {
  readonly name: string;
  readonly clock: MachineClock;
  readonly cache: Cache;
  readonly postgres: ChangeSource & KeyCacheSources;
}

/** The production lease, change log and key cache, composed as in the application, on a simulated machine. */
export function startReplica(
  { name, clock, cache, postgres }: Machine,
  leaseMs: number,
  beginning: Snapshot,
  timeline: string,
  maxRemembered: number,
  tally: Tally,
): Replica {
  let polls = 0;
  let reads = 0;
  let hits = 0;

  const changeLog = createChangeLog(beginning, timeline, maxRemembered);
  const { isCurrent } = changeLog;
  changeLog.isCurrent = (versioned) => {
    const current = isCurrent(versioned);
    if (!current) tally.fenced += 1;
    return current;
  };

  const source: ChangeSource = {
    connect: postgres.connect,
    startTimeline: postgres.startTimeline,
    startTimelineAfterCrash: postgres.startTimelineAfterCrash,
    changedSince(seen) {
      polls += 1;
      return postgres.changedSince(seen);
    },
  };
  const lease = createLease(source, changeLog, leaseMs, clock, (changes) => delegation.invalidate(changes));
  const { ensure } = lease;
  lease.ensure = async () => {
    const before = polls;
    await ensure();
    if (polls > before) tally.leaseLost += 1;
  };

  const sources: KeyCacheSources = {
    readKeyRecord(hash) {
      reads += 1;
      return postgres.readKeyRecord(hash);
    },
    readWorkspaceState(workspaceId) {
      reads += 1;
      return postgres.readWorkspaceState(workspaceId);
    },
    makeDurable: postgres.makeDurable,
  };

  const counted: Cache = {
    ...cache,
    async get(name) {
      const entry = await cache.get(name);
      if (entry !== undefined) hits += 1;
      return entry;
    },
  };

  const keyCache = createKeyCache(lease, changeLog, counted, sources, 1_000_000);
  const delegation = createDelegation(lease, keyCache, { record() {} }, { count() {} }, createLookupLimit());
  return {
    ...keyCache,
    name,
    authentication: createAuthentication([], keyCache, { record() {} }, lease.databaseTime),
    clock,
    delegation,
    databaseTime: lease.databaseTime,
    get reads() {
      return reads;
    },
    get hits() {
      return hits;
    },
    async renewLease() {
      await lease.renew();
      keyCache.confirm();
      delegation.renewed();
    },
  };
}
