// The service's own design, except that a change returns as soon as it is committed. Broken, because other replicas use
// their cached key state until their leases end.
import { createKeyCache as createSound } from "./key-cache.as-built.js";

export function createKeyCache(lease, ...rest) {
  return createSound({ ...lease, waitOut: async () => {} }, ...rest);
}
