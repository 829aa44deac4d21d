import type { ChangeSource } from "../../../src/revocation/change-poller.js";
import type { KeyCacheSources } from "../../../src/revocation/key-cache.js";
import type { LeaseTimes } from "../../../src/revocation/lease-time.js";
import { type Snapshot, sees, writeSnapshot } from "../../../src/revocation/snapshot.js";
import type { Dice } from "./dice.js";
import type { Step, Time } from "./time.js";

/** All that the database of this world says: of one workspace with one key, which belongs to an identity. */
export interface Contents {
  readonly workspaceEnabled: boolean;
  readonly keyEnabled: boolean;
  readonly keyDeleted: boolean;
  readonly keyEnded: boolean;
  /** By the database's clock. */
  readonly keyExpiresAt: number | null;
  readonly ownerName: string;
}

/** A change, which may depend on when it is made. */
export type ChangeOf = (time: number) => Partial<Contents>;

export interface Postgres {
  /** Which contents there were after each commit; the last are the present ones. */
  readonly history: readonly Contents[];
  readonly present: Contents;
  /** What a statement that begins now can see. */
  readonly snapshot: Snapshot;
  /** The time by its clock. */
  readonly time: number;
  setClockBack(ms: number): void;
  /**
   * Resolves to the number of commits up to the one that contains the change. Fails like any statement, perhaps after it
   * has committed.
   */
  write(who: string, row: string, change: ChangeOf): Promise<number>;
  /**
   * Makes a change that the key itself asked for, once there is a connection, if the key is as it was authorized. Fails
   * as PostgreSQL does if it is not.
   */
  writeAsKey(who: string, made: () => void): Promise<void>;
  /** The connections of one replica. */
  connect(who: string): ChangeSource & KeyCacheSources;
  /** For how long leases last at present. */
  readonly leaseMs: number;
  /** The connection of somebody who changes the lease time. */
  leaseTimes(who: string): LeaseTimes;
}

export const workspaceId = "ws";
export const keyId = "key";
export const identityId = "identity";

const longAgo = new Date(0);

/** The id of the first transaction. */
const firstXid = 1_000;
/** What its clock says at first. Those of others may be ahead or behind. */
export const timeOfDay = 10_000_000;

const connectionLost = new Error("the connection was lost");

const outdatedCaller = Object.assign(new Error("the calling key is not as it was authorized"), { code: "LK001" });

/** How often a statement or its answer takes longer than a lease, or gets lost: once in so many times. */
const rarity = { slow: 8, lost: 16 };
const slowMs = 500;

/**
 * A statement reaches the server, takes its snapshot or commits, and its answer arrives: anything may happen in between. A
 * change has the id of its transaction before it commits, so that others may begin later and commit before it. Rows are
 * stamped as the triggers do it.
 */
export function createPostgres(firstLeaseMs: number, step: Step, time: Time, dice: Dice, speed: number): Postgres {
  let setBackByMs = 0;
  let lease = { leaseMs: firstLeaseMs, waitMs: firstLeaseMs, version: "0" };
  const history: [Contents, ...Contents[]] = [
    {
      workspaceEnabled: true,
      keyEnabled: true,
      keyDeleted: false,
      keyEnded: false,
      keyExpiresAt: null,
      ownerName: "owner 0",
    },
  ];
  const stamps = new Map([workspaceId, keyId, identityId].map((id) => [id, 0]));
  const present = () => history.at(-1) ?? history[0];
  let nextXid = firstXid;
  let lastCompleted = firstXid - 1;
  const inProgress = new Set<number>();

  function snapshot(): Snapshot {
    const xmax = lastCompleted + 1;
    const running = [...inProgress].filter((xid) => xid < xmax);
    return { xmin: Math.min(xmax, ...running), xmax, inProgress: running };
  }

  const clockTime = () => timeOfDay + time.now() * speed - setBackByMs;

  async function travel(what: string): Promise<void> {
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

  function commit(xid: number, row: string, changeOf: ChangeOf): number {
    const before = present();
    const change = changeOf(clockTime());
    const after = { ...before, ...change };
    const changes = Object.keys(change) as (keyof Contents)[];
    if (changes.some((what) => before[what] !== after[what])) {
      history.push(after);
      stamps.set(row, xid);
    }
    end(xid);
    return history.length - 1;
  }

  return {
    history,
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
    async write(who, row, change) {
      await travel(`${who} writes: ${row}`);
      const xid = begin();
      // Others may begin and commit meanwhile.
      if (dice.oneIn(2)) await step(`${who} flushes its commit: ${row}`);
      const committed = commit(xid, row, change);
      await travel(`${who} hears of its write: ${row}`);
      return committed;
    },
    async writeAsKey(who, made) {
      await travel(`${who} has a connection for a change`);
      if (!isUsable(present())) throw outdatedCaller;
      made();
      await travel(`${who} hears of its change`);
    },
    connect: (who) => ({
      connect: async () => {},
      startTimeline: async () => {},
      async changedSince(seen) {
        await travel(`${who} asks for changes`);
        const changes = [...stamps].flatMap(([id, xid]) => (sees(seen, xid) ? [] : [{ id, xid }]));
        const found = {
          snapshot: snapshot(),
          leaseMs: lease.leaseMs,
          waitMs: lease.waitMs,
          history: "the one",
          standby: false,
          unsafeSetting: null,
          changes,
          time: clockTime(),
        };
        await travel(`${who} hears of changes`);
        return found;
      },
      async readKeyRecord() {
        await travel(`${who} reads the key`);
        const found = standing(present(), writeSnapshot(snapshot()));
        await travel(`${who} gets the key`);
        return found;
      },
      async readWorkspaceState() {
        await travel(`${who} reads the workspace`);
        const found = { enabled: present().workspaceEnabled, snapshot: writeSnapshot(snapshot()) };
        await travel(`${who} gets the workspace`);
        return found;
      },
      makeDurable: async () => {},
    }),
    get leaseMs() {
      return lease.leaseMs;
    },
    leaseTimes(who) {
      async function update(what: string, change: (before: typeof lease) => Partial<typeof lease> | undefined) {
        await travel(`${who} ${what}`);
        const changed = change(lease);
        if (changed) lease = { ...lease, ...changed, version: `${Number(lease.version) + 1}` };
        const row = lease;
        await travel(`${who} hears of it`);
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

/** As the condition in the statement of every change has it, of a key whose scopes never change. */
function isUsable({ workspaceEnabled, keyEnabled, keyDeleted, keyEnded }: Contents): boolean {
  return workspaceEnabled && keyEnabled && !keyDeleted && !keyEnded;
}

function standing(contents: Contents, snapshot: string) {
  const { workspaceEnabled, keyEnabled, keyDeleted, keyEnded, keyExpiresAt, ownerName } = contents;
  if (keyDeleted) return undefined;
  return {
    keyId,
    workspaceId,
    name: "",
    enabled: keyEnabled,
    scopes: ["*"],
    permissions: [],
    meta: {},
    expiresAt: keyExpiresAt === null ? null : new Date(keyExpiresAt),
    ended: keyEnded,
    identityId,
    externalId: ownerName,
    identityMeta: {},
    identityCreatedAt: longAgo,
    identityUpdatedAt: longAgo,
    workspaceEnabled,
    snapshot,
  };
}
