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
   * @param key the cached state of the key
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

/**
 * The verifications of a cached key that are not taken for a batch yet. It does not refer to the cached state, which may be
 * large, and is not kept in memory by its counts.
 */
interface Tally extends CountedKey {
  isPending: boolean;
  counts: MutableCounts;
  /** The same for each tag. Undefined: there was none. */
  tags: Map<string, MutableCounts> | undefined;
}

type MutableCounts = { -readonly [Result in keyof Counts]: number };

/** @param store adds a batch to the stored counts, unless it has added the batch before */
export function createVerificationCounter(store: (batch: CountBatch) => Promise<void>, log: Log): VerificationCounter {
  const counterId = randomUUID();
  let lastNumber = 0;
  /** By the cached state of a key, as [last-used times](../keys/last-used.ts) are. */
  const tallyByState = new WeakMap<CountedKey, Tally>();
  let pendingTallies: Tally[] = [];
  /** What the present flush has still to store. */
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
   * Reserves the memory of the row of a key, and of that of its identity. A workspace gets no more memory than is left for the
   * others: at most half of it, however many verifications it has.
   */
  function reserve({ workspaceId, identityId }: CountedKey, tag: string): boolean {
    const needed = identityId === null ? 1 : 2;
    const neededBytes = needed * (rowBytes + 2 * tag.length);
    const own = (bytesByWorkspace.get(workspaceId) ?? 0) + neededBytes;
    if (own > maxBytes - bytesTaken - bytes) {
      overflow.failed("too many verifications are not stored yet; not counting some", { workspaceId });
      return false;
    }
    bytes += neededBytes;
    rows += needed;
    bytesByWorkspace.set(workspaceId, own);
    return true;
  }

  /** Undefined if there is no memory for it. */
  function pendingTallyOf(key: CountedKey): Tally | undefined {
    let tally = tallyByState.get(key);
    if (tally?.isPending) return tally;
    if (!reserve(key, "")) return undefined;
    if (tally === undefined) {
      const { keyId, identityId, workspaceId } = key;
      tally = { keyId, identityId, workspaceId, isPending: false, counts: noCounts(), tags: undefined };
      tallyByState.set(key, tally);
    }
    tally.isPending = true;
    pendingTallies.push(tally);
    return tally;
  }

  /** Undefined if the key has too many tags, or there is no memory for one more. */
  function countsOfTag(tally: Tally, tag: string): MutableCounts | undefined {
    tally.tags ??= new Map();
    const existing = tally.tags.get(tag);
    if (existing !== undefined || tally.tags.size >= maxTags) return existing;
    if (!reserve(tally, tag)) return undefined;
    const counts = noCounts();
    tally.tags.set(tag, counts);
    return counts;
  }

  /** One row for each resource and tag: an identity may have several keys, and a key several states after changes. */
  function nextBatch(): CountBatch | undefined {
    const rows = new Map<string, CountRow>();
    while (rows.size < maxBatchSize) {
      const next = taken.next();
      if (next.done) break;
      const { resourceId, tag } = next.value;
      const id = `${resourceId} ${tag}`;
      rows.set(id, sum(next.value, rows.get(id)));
    }
    if (rows.size === 0) return undefined;
    lastNumber += 1;
    return { counterId, number: lastNumber, rows: [...rows.values()] };
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
    taken = take(pendingTallies);
    bytesTaken = bytes;
    pendingTallies = [];
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
    count(key, code, tags, times = 1) {
      const result = resultOf[code];
      if (result === undefined) return;
      const tally = pendingTallyOf(key);
      if (tally === undefined) return;
      increase(tally.counts, result, times);
      for (const tag of tags) increase(countsOfTag(tally, tag), result, times);
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

const results = Object.values(resultOf);

function noCounts(): MutableCounts {
  return { valid: 0, rateLimited: 0, usageExceeded: 0, insufficientPermissions: 0, disabled: 0, expired: 0 };
}

function increase(counts: MutableCounts | undefined, result: keyof Counts, times: number): void {
  if (counts !== undefined) counts[result] = Math.min(counts[result] + times, maxCount);
}

/** The counts of a row and of another for the same resource and tag. */
function sum(row: CountRow, other: CountRow | undefined): CountRow {
  if (other === undefined) return row;
  const total = { ...row };
  for (const result of results) increase(total, result, other[result]);
  return total;
}

/**
 * The rows of tallies. A count that is added before the iteration has passed it is included. The rows of tags come last: if
 * PostgreSQL is slow, the others are stored earlier.
 */
function* take(tallies: readonly Tally[]): Generator<CountRow> {
  for (const tally of tallies) {
    const { counts } = tally;
    tally.counts = noCounts();
    tally.isPending = false;
    yield* rowsOf(tally, "", counts);
  }
  for (const tally of tallies) {
    const { tags } = tally;
    tally.tags = undefined;
    for (const [tag, counts] of tags ?? []) yield* rowsOf(tally, tag, counts);
  }
}

function* rowsOf({ keyId, identityId, workspaceId }: CountedKey, tag: string, counts: Counts): Generator<CountRow> {
  yield { resourceId: keyId, workspaceId, tag, ...counts };
  if (identityId !== null) yield { resourceId: identityId, workspaceId, tag, ...counts };
}
