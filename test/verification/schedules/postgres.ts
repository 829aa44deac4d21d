import type { ChangeSource } from "../../../src/revocation/change-poller.js";
import type { KeyCacheSources } from "../../../src/revocation/key-cache.js";
import type { LeaseTimes } from "../../../src/revocation/lease-time.js";
import { type Snapshot, sees, writeSnapshot } from "../../../src/revocation/snapshot.js";
import type { Dice } from "./dice.js";
import type { Step, Time } from "./time.js";

/** The contents of the simulated database: one workspace with one key, which belongs to an identity. */
export interface Contents {
  readonly workspaceEnabled: boolean;
  /** A deleted workspace stays so, and its keys do not exist any more. */
  readonly workspaceDeleted: boolean;
  readonly keyEnabled: boolean;
  readonly keyDeleted: boolean;
  readonly keyEnded: boolean;
  /** By the database's clock. */
  readonly keyExpiresAt: number | null;
  readonly ownerName: string;
  /** Another key of the workspace: that of a client that verifies keys itself. */
  readonly verifierEnabled: boolean;
}

/** A change, which may depend on the time at which it is made. */
export type ChangeOf = (time: number) => Partial<Contents>;

export interface Postgres {
  /** The contents after each commit. The last are the present ones. */
  readonly versions: readonly Contents[];
  readonly present: Contents;
  /** The snapshot of a statement that begins now. */
  readonly snapshot: Snapshot;
  /** The time by the database's clock. */
  readonly time: number;
  setClockBack(ms: number): void;
  /** The present timeline; empty after a crash. */
  readonly timeline: string;
  /** Rolls a transaction back that has an id. */
  rollBack(): void;
  /** Transactions in progress are lost. The ids after the last commit are assigned again. */
  crash(): void;
  /**
   * Resolves to the number of commits up to the one that contains the change. It may fail like any statement, even
   * after its commit.
   */
  write(client: string, row: string, change: ChangeOf): Promise<number>;
  /**
   * Makes a change that the key itself requested, once there is a connection, if the key is as it was authorized. If
   * not, it fails as PostgreSQL does.
   */
  writeAsKey(client: string, onCommit: () => void): Promise<void>;
  /** The connections of one replica. */
  connect(client: string): ChangeSource & KeyCacheSources;
  /** The present lease time. */
  readonly leaseMs: number;
  /** The connection of an operator client changes the lease time. */
  leaseTimes(client: string): LeaseTimes;
}

export const workspaceId = "ws";
export const keyId = "key";
export const identityId = "identity";
export const verifierKeyId = "the key of a verifier";

/** The hash of the verifier's secret. Any other hash is that of the key. */
export const verifierHash = "cd".repeat(32);

const longAgo = new Date(0);

/** The id of the first transaction. */
const firstXid = 1_000;
/** The initial time of the database's clock. The clocks of machines may be ahead or behind. */
export const timeOfDay = 10_000_000;

const connectionLost = new Error("the connection was lost");

const callerChanged = Object.assign(new Error("the calling key is not as it was authorized"), { code: "LK001" });

/** A statement or its answer takes longer than a lease, or is lost, once in so many times. */
const rarity = { slow: 8, lost: 16 };
const slowMs = 500;

export interface PostgresOptions {
  /** What the contents are at first, if not a key that is enabled. */
  readonly first?: Partial<Contents> | undefined;
  /** Whether an answer sometimes does not name the changes, as after a restore of a backup. */
  readonly losesDetails?: boolean;
}

/**
 * A statement reaches the server, takes its snapshot or commits, and its answer arrives. Anything may happen in
 * between. A change has its transaction id before it commits, so others may begin later and commit before it. Rows are
 * stamped as the triggers do it.
 */
export function createPostgres(
  firstLeaseMs: number,
  step: Step,
  time: Time,
  dice: Dice,
  speed: number,
  { first, losesDetails = false }: PostgresOptions = {},
): Postgres {
  let setBackByMs = 0;
  let lease = { leaseMs: firstLeaseMs, waitMs: firstLeaseMs, version: "0" };
  const versions: [Contents, ...Contents[]] = [
    {
      workspaceEnabled: true,
      workspaceDeleted: false,
      keyEnabled: true,
      keyDeleted: false,
      keyEnded: false,
      keyExpiresAt: null,
      ownerName: "owner 0",
      verifierEnabled: true,
      ...first,
    },
  ];
  const stamps = new Map([workspaceId, keyId, identityId, verifierKeyId].map((id) => [id, 0]));
  const present = () => versions.at(-1) ?? versions[0];
  let nextXid = firstXid;
  let lastCompleted = firstXid - 1;
  let lastCommitted = firstXid - 1;
  let crashes = 0;
  let timeline = "timeline 1";
  const inProgress = new Set<number>();

  function snapshot(): Snapshot {
    const xmax = lastCompleted + 1;
    const running = [...inProgress].filter((xid) => xid < xmax);
    return { xmin: Math.min(xmax, ...running), xmax, inProgress: running };
  }

  const clockTime = () => timeOfDay + time.now() * speed - setBackByMs;

  async function transmit(what: string): Promise<void> {
    if (dice.oneIn(rarity.slow)) await time.passed(slowMs, what);
    else await step(what);
    if (dice.mishap(rarity.lost)) throw connectionLost;
  }

  function begin(): number {
    const xid = nextXid++;
    inProgress.add(xid);
    return xid;
  }

  function end(xid: number): void {
    inProgress.delete(xid);
    lastCompleted = Math.max(lastCompleted, xid);
  }

  function loseSinceLastCommit(): void {
    inProgress.clear();
    lastCompleted = lastCommitted;
    nextXid = lastCommitted + 1;
    crashes += 1;
    timeline = "";
  }

  function commit(xid: number, row: string, changeOf: ChangeOf): number {
    const before = present();
    const change = changeOf(clockTime());
    const after = { ...before, ...change };
    const fields = Object.keys(change) as (keyof Contents)[];
    if (fields.some((field) => before[field] !== after[field])) {
      versions.push(after);
      stamps.set(row, xid);
    }
    end(xid);
    lastCommitted = Math.max(lastCommitted, xid);
    return versions.length - 1;
  }

  return {
    versions,
    get present() {
      return present();
    },
    get snapshot() {
      return snapshot();
    },
    get time() {
      return clockTime();
    },
    setClockBack(ms) {
      setBackByMs += ms;
    },
    get timeline() {
      return timeline;
    },
    rollBack: () => end(begin()),
    crash: loseSinceLastCommit,
    async write(client, row, change) {
      await transmit(`${client} writes: ${row}`);
      const xid = begin();
      const crashesBefore = crashes;
      // Others may begin and commit meanwhile.
      if (dice.oneIn(2)) await step(`${client} flushes its commit: ${row}`);
      if (crashes > crashesBefore) throw connectionLost;
      const committed = commit(xid, row, change);
      await transmit(`${client} gets the answer of its write: ${row}`);
      return committed;
    },
    async writeAsKey(client, onCommit) {
      await transmit(`${client} has a connection for a change`);
      if (!isUsable(present(), clockTime())) throw callerChanged;
      onCommit();
      await transmit(`${client} gets the answer of its change`);
    },
    connect: (client) => ({
      connect: async () => {},
      startTimeline: async () => {},
      async startTimelineAfterCrash() {
        await transmit(`${client} starts a timeline`);
        timeline ||= `timeline ${crashes + 1}`;
        await transmit(`${client} has started a timeline`);
      },
      async changedSince(seen) {
        await transmit(`${client} polls for changes`);
        const changes = [...stamps].flatMap(([id, xid]) => (sees(seen, xid) ? [] : [{ id, workspaceId, xid }]));
        const found = {
          snapshot: snapshot(),
          leaseMs: lease.leaseMs,
          waitMs: lease.waitMs,
          timeline,
          standby: false,
          subscribed: false,
          unsafeSetting: null,
          changes: losesDetails && dice.mishap(rarity.lost) ? undefined : changes,
          time: clockTime(),
        };
        await transmit(`${client} gets the changes`);
        return found;
      },
      async readKeyRecord(hash) {
        const name = hash === verifierHash ? verifierKeyId : "the key";
        await transmit(`${client} reads ${name}`);
        const recordOf = hash === verifierHash ? verifierRecord : keyRecord;
        const found = recordOf(present(), writeSnapshot(snapshot()));
        await transmit(`${client} gets ${name}`);
        return found;
      },
      async readWorkspaceState() {
        await transmit(`${client} reads the workspace`);
        const { workspaceEnabled: enabled, workspaceDeleted } = present();
        const found = workspaceDeleted
          ? undefined
          : { enabled, hasImports: false, snapshot: writeSnapshot(snapshot()) };
        await transmit(`${client} gets the workspace`);
        return found;
      },
      makeDurable: async () => {},
    }),
    get leaseMs() {
      return lease.leaseMs;
    },
    leaseTimes(client) {
      async function update(what: string, change: (before: typeof lease) => Partial<typeof lease> | undefined) {
        await transmit(`${client} ${what}`);
        const changed = change(lease);
        if (changed) lease = { ...lease, ...changed, version: `${Number(lease.version) + 1}` };
        const row = lease;
        await transmit(`${client} gets the answer`);
        return { ...row, changed: changed !== undefined };
      }
      return {
        async raiseWait(ms) {
          await update("raises the wait", ({ waitMs }) => ({ waitMs: Math.max(waitMs, ms) }));
        },
        async setLease(leaseMs) {
          const row = await update("sets the lease", ({ waitMs }) => (waitMs >= leaseMs ? { leaseMs } : undefined));
          return row.changed ? row : undefined;
        },
        async setWait(waitMs, version) {
          const { changed } = await update("sets the wait", (row) =>
            row.version === version ? { waitMs } : undefined,
          );
          return changed;
        },
      };
    },
  };
}

/** The condition in the statement of every change, for a key whose scopes never change. */
function isUsable(contents: Contents, time: number): boolean {
  const { workspaceEnabled, workspaceDeleted, keyEnabled, keyDeleted, keyEnded, keyExpiresAt } = contents;
  const isExpired = keyEnded || (keyExpiresAt !== null && keyExpiresAt <= time);
  return workspaceEnabled && !workspaceDeleted && keyEnabled && !keyDeleted && !isExpired;
}

/** The key of the verifier has nothing to do with the owner and the expiry of the other key. */
function verifierRecord(contents: Contents, snapshot: string) {
  const record = keyRecord({ ...contents, keyDeleted: false }, snapshot);
  return (
    record && {
      ...record,
      keyId: verifierKeyId,
      enabled: contents.verifierEnabled,
      expiresAt: null,
      ended: false,
      identityId: null,
    }
  );
}

function keyRecord(contents: Contents, snapshot: string) {
  const { workspaceEnabled, workspaceDeleted, keyEnabled, keyDeleted, keyEnded, keyExpiresAt, ownerName } = contents;
  if (keyDeleted || workspaceDeleted) return undefined;
  return {
    keyId,
    workspaceId,
    name: "",
    enabled: keyEnabled,
    scopes: ["*"],
    permissions: [],
    apiId: null,
    roleIds: [],
    roles: [],
    ratelimits: [],
    hasCredits: false,
    meta: {},
    expiresAt: keyExpiresAt === null ? null : new Date(keyExpiresAt),
    ended: keyEnded,
    identityId,
    externalId: ownerName,
    identityMeta: {},
    identityRatelimits: [],
    identityCreatedAt: longAgo,
    identityUpdatedAt: longAgo,
    workspaceEnabled,
    workspaceHasImports: false,
    snapshot,
  };
}
