import { randomUUID } from "node:crypto";
import { VerificationCode } from "../../gen/latchkey/v1/keys_service_pb.js";
import type { Log } from "../observe/log.js";
import { createOutageLog } from "../observe/outage-log.js";
import type { KeyState } from "../revocation/key-state.js";
import { startPeriodicFlush } from "../storage/periodic-flush.js";
import { classifyError } from "../storage/postgres/errors.js";
import { type CountBatch, type CountRow, type Counts, maxCount, maxTags } from "./store.js";

/**
 * Counts verifications by key, by identity and by tag, and stores the counts in batches.
 *
 * - A count that was stored is stored once. If the outcome of a batch is unknown, the batch is sent again, unchanged and
 *   with the same number, before any other.
 * - A crash loses the counts that are not stored: those of the last two seconds, or of up to half a
 *   minute if they are many, or more if PostgreSQL is slow.
 * - A verification counts for the hour in which its batch is stored. No clock but the database's decides it.
 */
export interface VerificationCounter {
  /**
   * Counts verifications of a key. Never waits, never fails.
   *
   * @param times how many there were
   */
  count(key: CountedKey, code: VerificationCode, tags: readonly string[], times?: number): void;
  /** Stores the counts that are not stored yet. */
  close(): Promise<void>;
}

type CountedKey = Pick<KeyState["key"], "keyId" | "identityId" | "workspaceId">;

/** A batch locks its rows until it is stored. It is small, so that other processes wait only briefly for these rows. */
const maxBatchSize = 500;

/** The memory of counts that are not stored yet. */
const maxBytes = 32 * 2 ** 20;

/** An estimate of the memory of one row without its tag. */
const rowBytes = 300;

/** The counts of a key or an identity. */
interface Resource {
  readonly workspaceId: string;
  readonly counts: MutableCounts;
  /** The same for each tag. Undefined: there was none. */
  tags: Map<string, MutableCounts> | undefined;
}

type MutableCounts = { -readonly [Result in keyof Counts]: number };

/** @param store adds a batch to the stored counts, unless it has added the batch before */
export function createVerificationCounter(store: (batch: CountBatch) => Promise<void>, log: Log): VerificationCounter {
  const counterId = randomUUID();
  let lastNumber = 0;
  let resources = new Map<string, Resource>();
  /** What the present flush has taken from `resources`. */
  let taken: Iterator<CountRow> = [].values();
  /** The batch that is being stored. */
  let batch: CountBatch | undefined;
  let bytesTaken = 0;
  let bytes = 0;
  /** The number of rows that these bytes are for. */
  let rows = 0;
  let bytesByWorkspace = new Map<string, number>();
  const overflow = createOutageLog(log, "warn");
  const refusals = createOutageLog(log, "error");

  /**
   * Reserves the memory of a row. A workspace gets no more memory than is left for the others: at most half of it, however many
   * verifications it has.
   */
  function reserve(workspaceId: string, needed: number): boolean {
    const own = (bytesByWorkspace.get(workspaceId) ?? 0) + needed;
    if (own > maxBytes - bytesTaken - bytes) {
      overflow.failed("too many verifications are not stored yet; not counting some", { workspaceId });
      return false;
    }
    bytes += needed;
    rows += 1;
    bytesByWorkspace.set(workspaceId, own);
    return true;
  }

  function resourceOf(resourceId: string, workspaceId: string): Resource | undefined {
    const existing = resources.get(resourceId);
    if (existing !== undefined || !reserve(workspaceId, rowBytes)) return existing;
    const resource = { workspaceId, counts: noCounts(), tags: undefined };
    resources.set(resourceId, resource);
    return resource;
  }

  function countsOf(resource: Resource, tag: string): MutableCounts | undefined {
    resource.tags ??= new Map();
    const existing = resource.tags.get(tag);
    if (existing !== undefined || resource.tags.size >= maxTags) return existing;
    if (!reserve(resource.workspaceId, rowBytes + 2 * tag.length)) return undefined;
    const counts = noCounts();
    resource.tags.set(tag, counts);
    return counts;
  }

  function add(
    resourceId: string,
    workspaceId: string,
    result: keyof Counts,
    tags: readonly string[],
    times: number,
  ): void {
    const resource = resourceOf(resourceId, workspaceId);
    if (resource === undefined) return;
    increase(resource.counts, result, times);
    for (const tag of tags) increase(countsOf(resource, tag), result, times);
  }

  function nextBatch(): CountBatch | undefined {
    const rows: CountRow[] = [];
    while (rows.length < maxBatchSize) {
      const next = taken.next();
      if (next.done) break;
      rows.push(next.value);
    }
    if (rows.length === 0) return undefined;
    lastNumber += 1;
    return { counterId, number: lastNumber, rows };
  }

  async function storeTaken(): Promise<void> {
    for (;;) {
      batch ??= nextBatch();
      if (batch === undefined) break;
      await store(batch).then(() => refusals.recovered(), dropRefused);
      batch = undefined;
    }
    bytesTaken = 0;
  }

  /** Drops a batch that PostgreSQL refuses although it works: it would refuse the batch again and again. */
  function dropRefused(error: unknown): void {
    if (classifyError(error) !== undefined) throw error;
    refusals.failed("the database refuses counts of verifications; dropping them", { err: error });
  }

  /** Stores the counts that are pending now. Later ones wait for the next flush, or a busy key would make it endless. */
  async function flush(): Promise<void> {
    await storeTaken(); // what an earlier flush could not store
    taken = rowsOf(resources);
    bytesTaken = bytes;
    resources = new Map();
    bytes = 0;
    rows = 0;
    bytesByWorkspace = new Map();
    await storeTaken();
    overflow.recovered();
  }

  const pending = () => rows + (batch?.rows.length ?? 0);
  const isFilling = () => bytes > maxBytes / 4;
  const { close } = startPeriodicFlush({ what: "counts of verifications", flush, pending, isFilling }, log);
  return {
    count({ keyId, identityId, workspaceId }, code, tags, times = 1) {
      const result = resultOf[code];
      if (result === undefined) return;
      add(keyId, workspaceId, result, tags, times);
      if (identityId !== null) add(identityId, workspaceId, result, tags, times);
    },
    close,
  };
}

/** A verification of a key that does not exist is not counted. */
const resultOf: Readonly<Partial<Record<VerificationCode, keyof Counts>>> = {
  [VerificationCode.VALID]: "valid",
  [VerificationCode.RATE_LIMITED]: "rateLimited",
  [VerificationCode.USAGE_EXCEEDED]: "usageExceeded",
  [VerificationCode.INSUFFICIENT_PERMISSIONS]: "insufficientPermissions",
  [VerificationCode.DISABLED]: "disabled",
  [VerificationCode.EXPIRED]: "expired",
};

function noCounts(): MutableCounts {
  return { valid: 0, rateLimited: 0, usageExceeded: 0, insufficientPermissions: 0, disabled: 0, expired: 0 };
}

function increase(counts: MutableCounts | undefined, result: keyof Counts, times: number): void {
  if (counts !== undefined) counts[result] = Math.min(counts[result] + times, maxCount);
}

/** The rows of all resources. Those of tags come last: if PostgreSQL is slow, the others are stored earlier. */
function* rowsOf(resources: ReadonlyMap<string, Resource>): Generator<CountRow> {
  for (const [resourceId, { workspaceId, counts }] of resources) yield { resourceId, workspaceId, tag: "", ...counts };
  for (const [resourceId, { workspaceId, tags }] of resources) {
    for (const [tag, counts] of tags ?? []) yield { resourceId, workspaceId, tag, ...counts };
  }
}
