import { randomBytes } from "node:crypto";
import { join } from "node:path";
import type { Cluster } from "./cluster.js";
import { recordTimes } from "./effects.js";
import { openRedisService, type RedisService } from "./redis-service.js";
import { type OtherClock, openReplica, type Replica } from "./replica.js";

/** Replicas of the service as real processes, with one PostgreSQL that has a standby, and one Redis. */
export interface Environment {
  readonly cluster: Cluster;
  readonly replicas: readonly Replica[];
  readonly redis: RedisService;
  readonly operatorKey: string;
  readonly databaseUrl: string;
  /** The folder of the built service and library. */
  readonly dist: string;
  close(): Promise<void>;
}

export interface EnvironmentOptions {
  readonly cluster: Cluster;
  /** A database of the cluster. Omitted: its first one. */
  readonly databaseUrl?: string;
  readonly replicas: number;
  /** The clocks with which the first replicas start. Replicas without an entry have correct clocks. */
  readonly clocks?: readonly OtherClock[];
  /** The folder of the built service. */
  readonly dist: string;
  /** Where the replicas store files. */
  readonly folder: string;
}

/** One clock is behind and slow, the other ahead and fast. They differ by as much as the promise allows. */
export const divergentClocks: readonly OtherClock[] = [
  { aheadMs: -2_500, speed: 0.92 },
  { aheadMs: 2_500, speed: 1.08 },
];

/** The number of the replica that has several workers. */
const replicaWithWorkers = 3;

export async function openEnvironment(options: EnvironmentOptions): Promise<Environment> {
  const { cluster, databaseUrl = cluster.url, dist, folder } = options;
  const undo: (() => unknown)[] = [];
  const close = async () => {
    for (const step of undo.splice(0).reverse()) await step();
  };
  try {
    const replicas: Replica[] = [];
    const redis = await openRedisService((url) => {
      for (const replica of replicas) replica.redis.retarget(url);
    });
    undo.push(() => redis.close());
    const operatorKey = randomBytes(24).toString("hex");
    const installation = { dist, databaseUrl, redisUrl: redis.url, operatorKey, dataDir: join(folder, "data") };
    const add = async (number: number) => {
      const workers = number === replicaWithWorkers ? 2 : 1;
      const replica = await openReplica(`replica ${number}`, installation, {
        workers,
        clock: options.clocks?.[number - 1] ?? {},
      });
      replicas.push(replica);
      undo.push(() => replica.close());
    };
    await add(1); // creates the schema
    await recordTimes(databaseUrl);
    await Promise.all(Array.from({ length: options.replicas - 1 }, (_, index) => add(index + 2)));
    return { cluster, replicas, redis, operatorKey, databaseUrl, dist, close };
  } catch (error) {
    await close();
    throw error;
  }
}
