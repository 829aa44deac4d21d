import type { Cache } from "../storage/redis.js";
import type { Lease } from "./lease.js";

/** How the service stands. Throws if it cannot judge any key; that Redis is out of use only makes it slower. */
export async function readinessOf(lease: Lease, cache: Cache | undefined) {
  await lease.ensure();
  const inUse = cache?.inUse ? "in use" : "out of use";
  return { status: "ready", lease: "held", redis: cache ? inUse : "none" };
}
