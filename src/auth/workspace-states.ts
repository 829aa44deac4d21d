import type { Cache } from "../storage/redis.js";
import type { WorkspaceState } from "../workspaces/store.js";

/** Between which epochs a cached state must have been read to be believed. */
export interface Fence {
  /** The workspace's last change: an older state may miss it. */
  readonly lastChange: bigint;
  /** The present: a state from the future was left behind by a database that has since been restored. */
  readonly present: bigint;
}

/** Answers, for all doors, whether a workspace is enabled. */
export interface WorkspaceStates {
  /**
   * Whether the workspace is enabled, its last change included. False for a workspace that does not exist; throws when
   * nobody can be asked; never true because something failed.
   */
  isEnabled(workspaceId: string, fence: Fence): Promise<boolean>;
  /** Puts the present state into the cache after a change: a courtesy to the next caller, on which nothing rests. */
  refresh(workspaceId: string): Promise<void>;
}

/** How long an entry may help. Long, because the fence and not the lifetime keeps old entries from being believed. */
const lifetimeMs = 10 * 60_000;

/**
 * Redis over Postgres, read through. Redis is not trusted: an entry counts only if the snapshot it was read from lies
 * inside the fence. So a lost write, a stale replica or an old write replayed cannot bring a disabled workspace back;
 * they cost one read of Postgres.
 */
export function createWorkspaceStates(
  readState: (workspaceId: string) => Promise<WorkspaceState | undefined>,
  cache: Cache,
): WorkspaceStates {
  async function load(workspaceId: string): Promise<WorkspaceState | undefined> {
    const state = await readState(workspaceId);
    // Not waited for: a cache that is slow costs a caller its time once, at the reading.
    if (state !== undefined) void cache.set(entryKey(workspaceId), writeEntry(state), lifetimeMs);
    return state;
  }

  return {
    async isEnabled(workspaceId, { lastChange, present }) {
      const cached = readEntry(await cache.get(entryKey(workspaceId)));
      if (cached !== undefined && lastChange <= cached.epoch && cached.epoch <= present) return cached.enabled;
      return (await load(workspaceId))?.enabled ?? false;
    },

    async refresh(workspaceId) {
      await load(workspaceId).catch(() => {});
    },
  };
}

function entryKey(workspaceId: string): string {
  return `latchkey:ws:${workspaceId}`;
}

function writeEntry({ enabled, epoch }: WorkspaceState): string {
  return `${enabled ? "enabled" : "disabled"}@${epoch}`;
}

/** Parsed strictly: what does not look exactly like an entry of ours is no entry. */
function readEntry(text: string | undefined): WorkspaceState | undefined {
  const [, state, epoch] = /^(enabled|disabled)@(\d{1,18})$/.exec(text ?? "") ?? [];
  return epoch === undefined ? undefined : { enabled: state === "enabled", epoch: BigInt(epoch) };
}
