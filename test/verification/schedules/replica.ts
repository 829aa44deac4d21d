import { type Authentication, createAuthentication } from "../../../src/auth/authenticate.js";
import { createChangeLog } from "../../../src/revocation/change-log.js";
import type { ChangeSource } from "../../../src/revocation/change-poller.js";
import { createKeyCache, type KeyCache, type KeyCacheSources } from "../../../src/revocation/key-cache.js";
import { createLease } from "../../../src/revocation/lease.js";
import type { Snapshot } from "../../../src/revocation/snapshot.js";
import type { Cache } from "../../../src/storage/redis/client.js";
import type { Tally } from "./tally.js";
import type { MachineClock } from "./time.js";

/** One process with its clocks. */
export interface Replica extends KeyCache {
  readonly name: string;
  readonly authentication: Authentication;
  readonly clock: MachineClock;
  databaseTime(): Date;
  /** How often it has asked Postgres for a key or a workspace. */
  readonly readings: number;
  /** How often Redis had something for it. */
  readonly hits: number;
  renewLease(): Promise<void>;
}

export interface Machine {
  readonly name: string;
  readonly clock: MachineClock;
  readonly cache: Cache;
  readonly postgres: ChangeSource & KeyCacheSources;
}

/** The real lease, fence and holdings, put together as the application does it, on a simulated machine. */
export function startReplica(
  { name, clock, cache, postgres }: Machine,
  leaseMs: number,
  beginning: Snapshot,
  mostRemembered: number,
  tally: Tally,
): Replica {
  let questions = 0;
  let readings = 0;
  let hits = 0;

  const changes = createChangeLog(beginning, "the one", mostRemembered);
  const { isCurrent: admit } = changes;
  changes.isCurrent = (fact) => {
    const admitted = admit(fact);
    if (!admitted) tally.fenced += 1;
    return admitted;
  };

  const source: ChangeSource = {
    connect: postgres.connect,
    startTimeline: postgres.startTimeline,
    changedSince(seen) {
      questions += 1;
      return postgres.changedSince(seen);
    },
  };
  const lease = createLease(source, changes, leaseMs, clock);
  const { ensure } = lease;
  lease.ensure = async () => {
    const before = questions;
    await ensure();
    if (questions > before) tally.leaseLost += 1;
  };

  const sources: KeyCacheSources = {
    readKeyRecord(hash) {
      readings += 1;
      return postgres.readKeyRecord(hash);
    },
    readWorkspaceState(workspaceId) {
      readings += 1;
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

  const holdings = createKeyCache(lease, changes, counted, sources, 1_000_000);
  return {
    ...holdings,
    name,
    authentication: createAuthentication("the operator", holdings, { record() {} }, lease.databaseTime),
    clock,
    databaseTime: lease.databaseTime,
    get readings() {
      return readings;
    },
    get hits() {
      return hits;
    },
    async renewLease() {
      await lease.renew();
      holdings.confirm();
    },
  };
}
