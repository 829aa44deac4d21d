import { serviceShuttingDown } from "../errors.js";
import type { Cache } from "../storage/redis/client.js";
import type { Lease } from "./lease.js";

/** Whether a load balancer should send requests to this process. */
export interface Readiness {
  /** The state of the service. Throws if the service cannot verify keys, or if it is shutting down. */
  read(): Promise<Readonly<Record<string, string>>>;
  /** Marks the service as shutting down. */
  end(): void;
}

/** A process is ready if it has a lease or can get one. Without Redis it is slower, but ready. */
export function createReadiness(lease: Lease, cache: Cache | undefined): Readiness {
  let ended = false;
  return {
    async read() {
      await lease.ensure();
      if (ended) throw serviceShuttingDown(); // the shutdown may have begun while the lease was renewed
      const inUse = cache?.inUse ? "in use" : "out of use";
      return { status: "ready", lease: "valid", redis: cache ? inUse : "none" };
    },
    end() {
      ended = true;
    },
  };
}
