import { Cluster, type Redis } from "ioredis";
import type { Log } from "../../observe/log.js";
import { createOutageLog } from "../../observe/outage-log.js";

/**
 * Reports a server that deletes entries when it is full. It would delete counters of rate limits, and no result could say so:
 * a deleted counter looks like a window that has not begun.
 *
 * @returns checks the server, or all nodes of a cluster. Never rejects: the user of Redis may lack the right to INFO
 */
export function createEvictionCheck(client: Redis | Cluster, log: Log): () => Promise<void> {
  const outage = createOutageLog(log, "warn");
  return async () => {
    const nodes = client instanceof Cluster ? client.nodes("master") : [client];
    const infos = await Promise.all(nodes.map((node) => node.info("memory"))).catch(() => undefined);
    if (infos === undefined) return;
    const policy = infos.map(evictionPolicyOf).find((found) => found !== undefined);
    if (policy === undefined) outage.recovered();
    else outage.failed(message, { policy }, policy);
  };
}

const message =
  "Redis deletes entries when it is full, so rate limits can admit more than they allow; set maxmemory-policy noeviction";

/** Undefined if the server deletes nothing. */
function evictionPolicyOf(info: string): string | undefined {
  const [, maxMemory = "0"] = /^maxmemory:(\d+)/m.exec(info) ?? [];
  const [, policy = "noeviction"] = /^maxmemory_policy:([\w-]+)/m.exec(info) ?? [];
  return maxMemory === "0" || policy === "noeviction" ? undefined : policy;
}
