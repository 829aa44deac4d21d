import { toBinary } from "@bufbuild/protobuf";
import { LRUCache } from "lru-cache";
import { type CachedKey, CachedKeySchema } from "../../gen/latchkey/v1/verifier_service_pb.js";
import { toVerifyResult, type VerifyResult } from "./result.js";

/** The time on both clocks. */
export interface ClockReading {
  readonly monotonic: number;
  readonly wall: number;
}

/** The state of a key, as received on a stream. */
export interface KeyState {
  readonly hash: string;
  /** The result without a permission query. */
  readonly result: VerifyResult;
  /** The service must be asked for each verification that this state does not refuse. */
  readonly verifyRemotely: boolean;
  /**
   * On both clocks, because the monotonic one may stand still while the machine is suspended, and the other one may be
   * set back. Infinite for a key without an expiry.
   */
  readonly usableUntil: ClockReading;
  readonly dependsOn: readonly string[];
  readonly uses: Uses;
}

/** The verifications of a key that are not reported yet. They may outlive its state, so they do not refer to it. */
export interface Uses {
  readonly hash: string;
  readonly byCode: Map<string, number>;
  /** On the monotonic clock. */
  lastUsedAt: number;
  /** The secret, if its hash is remembered. */
  secret: string | undefined;
}

/** The key states of one stream, the most recently used ones within a limit of memory. */
export interface KeyStates {
  get(hash: string): KeyState | undefined;
  add(hash: string, cached: CachedKey, requestedAt: ClockReading): void;
  delete(hash: string): void;
  /** Removes the states that depend on one of these ids, and returns them. */
  invalidate(ids: readonly string[]): KeyState[];
  clear(): void;
  readonly size: number;
}

/** The share of its time that the state of a key with an expiry is used for, in case our clock is slow. */
const usableShare = 5 / 6;

/** An estimate: the heap of a state is a multiple of its encoded size, plus its entries in the cache and the index. */
const bytesOf = (cached: CachedKey) => 1_000 + 6 * toBinary(CachedKeySchema, cached).length;

export function createKeyStates(maxBytes: number): KeyStates {
  const hashesById = new Map<string, Set<string>>();
  const states = new LRUCache<string, KeyState>({ maxSize: maxBytes, dispose: removeFromIndex });

  function removeFromIndex({ hash, dependsOn }: KeyState): void {
    for (const id of dependsOn) {
      const hashes = hashesById.get(id);
      hashes?.delete(hash);
      if (hashes?.size === 0) hashesById.delete(id);
    }
  }

  return {
    get size() {
      return states.size;
    },
    get(hash) {
      const state = states.peek(hash);
      // Only the first use after a report makes the state the most recently used one: to do so takes a tenth of the time of a
      // verification.
      if (state?.uses.byCode.size === 0) states.get(hash);
      return state;
    },
    add(hash, cached, requestedAt) {
      const { result, verifyRemotely, validForMs, dependsOn } = cached;
      if (result === undefined) return;
      const validMs = validForMs === undefined ? Number.POSITIVE_INFINITY : usableShare * Number(validForMs);
      states.delete(hash); // otherwise `dispose` of the old state would remove the new one from the index
      states.set(
        hash,
        {
          hash,
          result: toVerifyResult(result),
          verifyRemotely,
          usableUntil: { monotonic: requestedAt.monotonic + validMs, wall: requestedAt.wall + validMs },
          dependsOn,
          uses: { hash, byCode: new Map(), lastUsedAt: Number.NEGATIVE_INFINITY, secret: undefined },
        },
        { size: bytesOf(cached) },
      );
      if (!states.has(hash)) return; // larger than the limit
      for (const id of dependsOn) {
        const hashes = hashesById.get(id);
        if (hashes === undefined) hashesById.set(id, new Set([hash]));
        else hashes.add(hash);
      }
    },
    delete: (hash) => void states.delete(hash),
    invalidate(ids) {
      const hashes = new Set(ids.flatMap((id) => [...(hashesById.get(id) ?? [])]));
      const removed = [...hashes].map((hash) => states.peek(hash) as KeyState);
      for (const hash of hashes) states.delete(hash);
      return removed;
    },
    clear: () => states.clear(),
  };
}
