import type { RedisCache } from "../storage/redis/client.js";
import { type CountedUses, countInRedis, type NotBegun } from "./count-script.js";
import type { CounterReading } from "./counters.js";

/**
 * Counts uses in Redis. Resolves to the counts from before, and to undefined if Redis did not count.
 *
 * @param hashTag of the counters
 */
export type Count = (uses: CountedUses, hashTag: string) => Promise<CounterReading[] | NotBegun | undefined>;

/** Checks that one command counts. */
interface Batch {
  readonly checks: CountedUses[];
  counters: number;
  readonly counted: Promise<Awaited<ReturnType<typeof countInRedis>> | undefined>;
  send(): void;
}

/**
 * A batch with this many counters is sent at once: Redis counts while this process reads further requests, and a short
 * command delays its other clients little.
 */
const maxCounters = 64;

/**
 * Counts the checks of one turn of the event loop with one command, or with a few. With a command for each, commands took 22 %
 * of the CPU time of verifications with two rate limits, most of it for writes to the socket; together they take 7 to 9 %.
 * In a cluster, a command can count only checks with the same hash tag.
 */
export function createBatchedCount(redis: RedisCache): Count {
  /** The batches that are not sent yet, by hash tag; by an empty one without a cluster. */
  const open = new Map<string, Batch>();

  function openBatch(tag: string): Batch {
    const checks: CountedUses[] = [];
    let send = () => {};
    const counted = new Promise<Awaited<Batch["counted"]>>((resolve) => {
      send = () => {
        clearImmediate(endOfTurn);
        open.delete(tag);
        resolve(redis.store("EVALSHA", () => countInRedis(redis.client, checks)));
      };
    });
    // Later than all requests that have arrived by now.
    const endOfTurn = setImmediate(send);
    const batch: Batch = { checks, counters: 0, counted, send };
    open.set(tag, batch);
    return batch;
  }

  return async (check, hashTag) => {
    const tag = redis.isCluster ? hashTag : "";
    const batch = open.get(tag) ?? openBatch(tag);
    const place = batch.checks.push(check) - 1;
    batch.counters += check.uses.length;
    if (batch.counters >= maxCounters) batch.send();
    return (await batch.counted)?.[place];
  };
}
