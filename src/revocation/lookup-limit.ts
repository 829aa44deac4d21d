import { tooManyLookups } from "../errors.js";

/** Limits the lookups that each workspace has in flight, whichever of its calls and streams began them. */
export interface LookupLimit {
  /** Runs a lookup of a workspace. Throws at once if the workspace has too many in flight. */
  run<T>(workspaceId: string, lookUp: () => Promise<T>): Promise<T>;
}

/** How many lookups of one workspace may be in flight. Each takes memory, and a turn on a connection of the pool. */
const maxLookups = 1_000;

/**
 * Counts lookups until they end, also those of calls and streams that have ended: a lookup is not cancelled with its call.
 * Without this limit, one workspace alone could reach the limit of lookups of all workspaces.
 */
export function createLookupLimit(): LookupLimit {
  const inFlight = new Map<string, number>();

  function end(workspaceId: string): void {
    const left = (inFlight.get(workspaceId) ?? 1) - 1;
    if (left === 0) inFlight.delete(workspaceId);
    else inFlight.set(workspaceId, left);
  }

  return {
    run(workspaceId, lookUp) {
      const before = inFlight.get(workspaceId) ?? 0;
      if (before >= maxLookups) throw tooManyLookups(maxLookups);
      inFlight.set(workspaceId, before + 1);
      return lookUp().finally(() => end(workspaceId));
    },
  };
}
