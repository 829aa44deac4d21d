import type { Cache } from "../storage/redis.js";
import type { WorkspaceState } from "../workspaces/store.js";

/** Answers, for all doors, whether a workspace is enabled. */
export interface WorkspaceStates {
  /**
   * Whether the workspace is enabled. The answer contains every change up to the epoch `notBefore`. False for a
   * workspace that does not exist; throws when nobody can be asked; never true because something failed.
   */
  isEnabled(workspaceId: string, notBefore: bigint): Promise<boolean>;
  /** Puts the present state into the cache after a change: a courtesy to the next caller, on which nothing rests. */
  refresh(workspaceId: string): Promise<void>;
}

/** How long an entry may help. Long, because the fence and not the lifetime keeps old entries from being believed. */
const lifetimeMs = 10 * 60_000;

/**
 * Redis over Postgres, read through. Redis is not trusted: an entry counts only if it was read from Postgres in a
 * snapshot at least as new as the workspace's last change (`notBefore`). So a lost write, a stale replica or an old
 * write replayed cannot bring a disabled workspace back; they cost one read of Postgres.
 */
export function createWorkspaceStates(
  readState: (workspaceId: string) => Promise<WorkspaceState | undefined>,
  cache: Cache,
): WorkspaceStates {
  async function load(workspaceId: string): Promise<WorkspaceState | undefined> {
    const state = await readState(workspaceId);
    if (state !== undefined) await cache.set(entryKey(workspaceId), writeEntry(state), lifetimeMs);
    return state;
  }

  return {
    async isEnabled(workspaceId, notBefore) {
      const cached = readEntry(await cache.get(entryKey(workspaceId)));
      if (cached !== undefined && cached.epoch >= notBefore) return cached.enabled;
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
