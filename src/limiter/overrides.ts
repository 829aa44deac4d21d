import type { Call } from "../call/call.js";
import { chain, type MaybePromise } from "../call/maybe-promise.js";
import { type ChangeLog, overridesOf } from "../revocation/change-log.js";
import { heapSizeOf } from "../revocation/heap-size.js";
import type { Lease } from "../revocation/lease.js";
import type { LookupLimit } from "../revocation/lookup-limit.js";
import type { EntryCodec } from "../revocation/signed-entry.js";
import { parseSnapshot } from "../revocation/snapshot.js";
import { createTieredCache, type TieredCache } from "../revocation/tiered-cache.js";
import type { InSnapshot } from "../storage/postgres/connection.js";
import { noCache } from "../storage/redis/client.js";
import { createOverrideSet, type Override, type OverrideSet } from "./override-set.js";

/** The overrides of rate limits, cached in the memory of this process. */
export interface Overrides {
  /**
   * The override for an identifier: at once if the namespace is cached. It includes every acknowledged change. Throws if
   * PostgreSQL is needed and cannot be asked, or if the workspace has too many lookups in flight.
   */
  find(workspaceId: string, namespace: string, identifier: string, call: Call): MaybePromise<Override | undefined>;
  /** Must be called after changes were appended to the change log. */
  confirm(): void;
  /** The number of lookups of namespaces that each level answered. */
  readonly lookups: TieredCache<unknown>["lookups"];
}

/** Reads all overrides of a namespace, the oldest first. */
export type ReadOverrides = (
  workspaceId: string,
  namespace: string,
  call?: Call,
) => Promise<InSnapshot<{ overrides: readonly Override[] }>>;

/** The heap of a set in relation to its rows: it also has an index by identifier, and the parts of patterns. */
const indexFactor = 2;

/**
 * Caches the overrides of each namespace as a whole, and also that a namespace has none. So a use of a limit costs no
 * statement, with and without overrides. The cache is valid under the lease, as that of keys is. It is in memory only: a use
 * of a limit asks Redis for its counters, and should not ask it twice.
 *
 * @param lookups each call can name 50 namespaces, and clients invent them at will
 * @param capacity the maximum size of the cached overrides, in bytes of heap
 */
export function createOverrides(
  lease: Pick<Lease, "remaining" | "ensure">,
  changeLog: ChangeLog,
  read: ReadOverrides,
  lookups: LookupLimit,
  capacity: number,
): Overrides {
  const namespaces = createTieredCache<CachedSet>({
    codec: notStored,
    changeLog,
    cache: noCache,
    async read(id, call) {
      const [workspaceId, namespace] = partsOf(id);
      const { overrides, snapshot } = await read(workspaceId, namespace, call);
      const value = { set: createOverrideSet(overrides), bytes: indexFactor * heapSizeOf(overrides) };
      return { value, dependsOn: [overridesOf(workspaceId)], workspaceId, snapshot: parseSnapshot(snapshot) };
    },
    limitFetch(id, fetch) {
      const [workspaceId] = partsOf(id);
      return lookups.run(workspaceId, fetch);
    },
    capacity,
    sizeOf: ({ value }) => overheadBytes + value.bytes,
  });

  async function load(id: string, call: Call): Promise<CachedSet | undefined> {
    await lease.ensure();
    return namespaces.peek(id) ?? namespaces.load(id, "postgres", call);
  }

  return {
    lookups: namespaces.lookups,
    confirm: namespaces.confirm,
    find(workspaceId, namespace, identifier, call) {
      const id = `${workspaceId}/${namespace}`;
      const cached = lease.remaining() > 0 ? namespaces.peek(id) : undefined;
      if (cached !== undefined) namespaces.lookups.memory += 1;
      return chain(cached ?? load(id, call), (found) => found?.set.find(identifier));
    },
  };
}

interface CachedSet {
  readonly set: OverrideSet;
  /** The size of the overrides, in bytes of heap. */
  readonly bytes: number;
}

/** The id of a namespace with 255 characters, the snapshot, and the objects around the overrides. */
const overheadBytes = 1_000;

/** The id of a workspace contains no slash. */
function partsOf(id: string): [workspaceId: string, namespace: string] {
  const slash = id.indexOf("/");
  return [id.slice(0, slash), id.slice(slash + 1)];
}

/** Overrides are not stored in Redis. */
const notStored: EntryCodec<CachedSet> = { keyOf: (id) => id, sign: () => "", verify: () => undefined };
