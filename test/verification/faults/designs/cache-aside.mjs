// Plain cache-aside: whether a workspace is enabled is looked up in Redis, and in Postgres if it is not there; a change
// writes the new state over the old one. Broken, because Redis may miss that write, or hold an older one afterwards.
const lifetimeMs = 10 * 60_000;

export function createKeyCache(_lease, _changes, cache, sources) {
  const nameOf = (workspaceId) => `latchkey:ws:${workspaceId}`;
  const remember = (workspaceId, enabled) =>
    cache.set(nameOf(workspaceId), enabled ? "enabled" : "disabled", lifetimeMs);

  const known = new Set();

  /** A change does not say here what it has changed, so the state of all workspaces that were asked for lately is written. */
  async function overwrite() {
    for (const workspaceId of [...known].slice(-20)) {
      const state = await sources.readWorkspaceState(workspaceId);
      if (state !== undefined) await remember(workspaceId, state.enabled);
    }
  }

  async function isEnabled(workspaceId) {
    known.add(workspaceId);
    const cached = await cache.get(nameOf(workspaceId));
    if (cached !== undefined) return cached === "enabled";
    const state = await sources.readWorkspaceState(workspaceId);
    if (state !== undefined) await remember(workspaceId, state.enabled);
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
