// Plain cache-aside: whether a workspace is enabled is looked up in Redis, and in Postgres if it is not there; a change
// writes the new state over the old one. Broken, because Redis may miss that write, or hold an older one afterwards.
const lifetimeMs = 10 * 60_000;

export function createHoldings(_lease, _changes, cache, sources) {
  const nameOf = (workspaceId) => `latchkey:ws:${workspaceId}`;
  const remember = (workspaceId, enabled) =>
    cache.set(nameOf(workspaceId), enabled ? "enabled" : "disabled", lifetimeMs);

  async function isEnabled(workspaceId) {
    const cached = await cache.get(nameOf(workspaceId));
    if (cached !== undefined) return cached === "enabled";
    const state = await sources.readState(workspaceId);
    if (state !== undefined) await remember(workspaceId, state.enabled);
    return state?.enabled ?? false;
  }

  return {
    held: () => undefined,
    recheck: () => undefined,
    read: async (hash) => {
      const key = await sources.readStanding(hash);
      return key && { key, workspaceEnabled: key.workspaceEnabled };
    },
    async find(hash) {
      const key = await sources.readStanding(hash);
      return key && { key, workspaceEnabled: await isEnabled(key.workspaceId) };
    },
    ready: async () => {},
    changed: async () => {},
    settled: async () => {},
    knownHistory: () => "",
    workspaceChanged: (workspaceId, enabled) => remember(workspaceId, enabled),
  };
}
