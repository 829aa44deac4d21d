import { serviceShuttingDown } from "../errors.js";
import type { Cache } from "../storage/redis/client.js";
import type { Lease } from "./lease.js";

/** Whether callers should come here. */
export interface Readiness {
  /** How the service stands. Throws if it cannot judge any key, or is about to stop. */
  read(): Promise<Readonly<Record<string, string>>>;
  /** From now on it is about to stop. */
  end(): void;
}

/** Ready is who has a lease, or can get one; that Redis is unavailable only makes it slower. */
export function createReadiness(lease: Lease, cache: Cache | undefined): Readiness {
  let ended = false;
  return {
    async read() {
      await lease.ensure();
      if (ended) throw serviceShuttingDown(); // it may have been told so meanwhile
      const inUse = cache?.inUse ? "in use" : "out of use";
      return { status: "ready", lease: "held", redis: cache ? inUse : "none" };
    },
    end() {
      ended = true;
    },
  };
}
