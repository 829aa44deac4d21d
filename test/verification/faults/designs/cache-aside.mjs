// Plain cache-aside: Redis stores whether a workspace is enabled, and Postgres is read after a miss. A change
// overwrites the entry. Broken, because Redis may miss that write, or may contain an older one afterwards.
const lifetimeMs = 10 * 60_000;

export function createKeyCache(_lease, _changes, cache, sources) {
  const nameOf = (workspaceId) => `latchkey:ws:${workspaceId}`;
  const store = (workspaceId, enabled) => cache.set(nameOf(workspaceId), enabled ? "enabled" : "disabled", lifetimeMs);

  const recent = new Set();

  /** This function does not receive what has changed, so it writes the state of all recently used workspaces. */
  async function overwrite() {
    for (const workspaceId of [...recent].slice(-20)) {
      const state = await sources.readWorkspaceState(workspaceId);
      if (state !== undefined) await store(workspaceId, state.enabled);
    }
  }

  async function isEnabled(workspaceId) {
    recent.add(workspaceId);
    const cached = await cache.get(nameOf(workspaceId));
    if (cached !== undefined) return cached === "enabled";
    const state = await sources.readWorkspaceState(workspaceId);
    if (state !== undefined) await store(workspaceId, state.enabled);
    return state?.enabled ?? false;
  }

  async function find(hash) {
    const key = await sources.readKeyRecord(hash);
    return key && { key, workspaceEnabled: await isEnabled(key.workspaceId) };
  }

  return {
    peek: () => undefined,
    recheck: find,
    readThrough: async (hash) => {
      const key = await sources.readKeyRecord(hash);
      return key && { key, workspaceEnabled: key.workspaceEnabled };
    },
    get: find,
    ensureLease: async () => {},
    awaitPropagation: overwrite,
    awaitEarlierChanges: overwrite,
    awaitDurability: async () => {},
    confirm: () => {},
    knownTimeline: () => "",
  };
}
