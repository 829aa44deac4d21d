import type { ChangeSource } from "../../src/auth/heartbeat.js";
import type { HoldingsSources } from "../../src/auth/holdings.js";
import type { Dice } from "./dice.js";
import type { Step, Time } from "./time.js";

/** All that the database of this world says: of one workspace with one key, which belongs to an identity. */
export interface Contents {
  readonly workspaceEnabled: boolean;
  readonly keyEnabled: boolean;
  readonly keyDeleted: boolean;
  readonly ownerName: string;
}

export interface Postgres {
  /** Which contents there were at each epoch; the last are the present ones. */
  readonly history: readonly Contents[];
  readonly present: Contents;
  readonly epoch: number;
  /** Resolves to the epoch that contains the change. Fails like any statement, perhaps after it has committed. */
  write(who: string, row: string, change: Partial<Contents>): Promise<number>;
  /**
   * Makes a change that the key itself asked for, once there is a connection, if the key is as it was authorized. Fails
   * as PostgreSQL does if it is not.
   */
  writeAsKey(who: string, made: () => void): Promise<void>;
  /** The connections of one replica. */
  connect(who: string): ChangeSource & HoldingsSources;
}

export const workspaceId = "ws";
export const keyId = "key";
export const identityId = "identity";

const longAgo = new Date(0);

const connectionLost = new Error("the connection was lost");

const outdatedCaller = Object.assign(new Error("the calling key is not as it was authorized"), { code: "LK001" });

/** How often a statement or its answer takes longer than a lease, or gets lost: once in so many times. */
const rarity = { slow: 8, lost: 16 };

/**
 * A statement reaches the server, takes its snapshot or commits, and its answer arrives: anything may happen in between.
 * Epochs are stamped as the triggers do it.
 */
export function createPostgres(leaseMs: number, step: Step, time: Time, dice: Dice): Postgres {
  const history: [Contents, ...Contents[]] = [
    { workspaceEnabled: true, keyEnabled: true, keyDeleted: false, ownerName: "owner 0" },
  ];
  const stamps = new Map([workspaceId, keyId, identityId].map((id) => [id, 0]));
  const present = () => history.at(-1) ?? history[0];
  const epoch = () => history.length - 1;

  async function travel(what: string): Promise<void> {
    if (dice.oneIn(rarity.slow)) await time.passed(2 * leaseMs, what);
    else await step(what);
    if (dice.mishap(rarity.lost)) throw connectionLost;
  }

  function commit(row: string, change: Partial<Contents>): number {
    const before = present();
    const after = { ...before, ...change };
    const changes = Object.keys(change) as (keyof Contents)[];
    if (changes.some((what) => before[what] !== after[what])) {
      history.push(after);
      stamps.set(row, epoch());
    }
    return epoch();
  }

  return {
    history,
    get present() {
      return present();
    },
    get epoch() {
      return epoch();
    },
    async write(who, row, change) {
      await travel(`${who} writes: ${row}`);
      const committed = commit(row, change);
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
      beginHistory: async () => {},
      async changedSince(known) {
        await travel(`${who} asks for changes`);
        const changes = [...stamps].flatMap(([id, changedAt]) => (changedAt > known ? [{ id, epoch: changedAt }] : []));
        const server = { history: "the one", standby: false, unsafeSetting: null };
        const found = { epoch: epoch(), leaseMs, removedAt: 0, ...server, changes };
        await travel(`${who} hears of changes`);
        return found;
      },
      async readStanding() {
        await travel(`${who} reads the key`);
        const found = standing(present(), epoch());
        await travel(`${who} gets the key`);
        return found;
      },
      async readState() {
        await travel(`${who} reads the workspace`);
        const found = { enabled: present().workspaceEnabled, epoch: epoch() };
        await travel(`${who} gets the workspace`);
        return found;
      },
      makeDurable: async () => {},
    }),
  };
}

/** As the condition in the statement of every change has it, of a key whose permissions and expiry never change. */
function isUsable({ workspaceEnabled, keyEnabled, keyDeleted }: Contents): boolean {
  return workspaceEnabled && keyEnabled && !keyDeleted;
}

function standing({ workspaceEnabled, keyEnabled, keyDeleted, ownerName }: Contents, epoch: number) {
  if (keyDeleted) return undefined;
  return {
    keyId,
    workspaceId,
    name: "",
    enabled: keyEnabled,
    scopes: ["*"],
    permissions: [],
    meta: {},
    expiresAt: null,
    identityId,
    externalId: ownerName,
    identityMeta: {},
    identityCreatedAt: longAgo,
    identityUpdatedAt: longAgo,
    workspaceEnabled,
    epoch,
  };
}
