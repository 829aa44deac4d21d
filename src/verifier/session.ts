import type { MessageInitShape } from "@bufbuild/protobuf";
import { VerificationCode } from "../../gen/latchkey/v1/keys_service_pb.js";
import type {
  DelegateRequestSchema,
  DelegateResponse,
  KeyUsesSchema,
  ResolvedKey,
} from "../../gen/latchkey/v1/verifier_service_pb.js";
import { hashSecret } from "../keys/secret.js";
import type { Clock } from "../revocation/clock.js";
import { createLocalGrant } from "./grant.js";
import { type ClockReading, createKeyStates, type KeyState, type Uses } from "./key-states.js";

/** A message to the service. */
export type Request = NonNullable<MessageInitShape<typeof DelegateRequestSchema>["message"]>;

/** What became of a request for the state of a key. */
export type Resolution = "cached" | "not found" | "unresolved";

/**
 * One stream to the service: the right to verify locally, and the key states that were received on it. A hash is the SHA-256
 * of a secret with one character per byte, because a lookup by 64 hex digits takes a tenth of a verification's time more.
 */
export interface Session {
  /** Applies a message. Throws if the session cannot continue. */
  receive(response: DelegateResponse): void;
  /** Sends a ping. */
  ping(): void;
  /** The hash of a secret. */
  hashOf(secret: string): string;
  /** Whether the service has granted the right to verify locally, and it still lasts. */
  isGranted(): boolean;
  /**
   * The state of a key that may be used at this moment. Undefined without a grant or without a state.
   */
  find(hash: string): KeyState | undefined;
  /** Requests the state of a key. Resolves when it has arrived, or when it will not arrive. Concurrent calls share it. */
  resolve(hash: string): Promise<Resolution>;
  /** Awaits the state of a key no longer. */
  abandon(hash: string): void;
  /** Whether the state of a key has been requested and has not arrived. */
  isResolving(hash: string): boolean;
  /** Counts a local verification of a secret with a state that `find` has just returned. */
  recordUse(secret: string, state: KeyState, code: string): void;
  /** Sends the verifications that were counted, of at most this many keys: those that have waited longest. Default: all. */
  reportUses(maxKeys?: number): void;
  /** Must be called when the stream has ended. Nothing that was received on it is used any more. */
  close(): void;
  /** The number of pings without a grant. */
  readonly unansweredPings: number;
  readonly cachedKeys: number;
  /** The number of keys whose verifications are not reported yet. */
  readonly usedKeys: number;
  /** Whether a secret without the format of this service can belong to a key, according to the last grant. */
  readonly mayHaveImports: boolean;
  /** How long the last grant lasted when it was sent. */
  readonly grantedMs: number;
}

/** The maximum number of entries in one report. */
const maxReported = 500;

/** The maximum number of keys whose verifications are not reported yet. With more, some are reported early. */
const maxUsed = 20_000;

/** The maximum number of requests without a response. The service answers no more. */
const maxPending = 1_000;

/** Invalidated states are requested again if they were used this recently, at most so many for one message. */
const refreshed = { usedWithinMs: 10_000, max: 100 };

interface PendingKey {
  readonly hash: string;
  readonly requestedAt: ClockReading;
  readonly id: number;
  readonly arrived: Promise<Resolution>;
  settle(resolution: Resolution): void;
}

export interface SessionOptions {
  readonly clock: Pick<Clock, "monotonic" | "wall">;
  /** The maximum memory of the key states. */
  readonly maxBytes: number;
  /** The verifications that are not reported yet: also those of earlier streams, which have ended. */
  readonly used?: Set<Uses>;
  /** Hands a message to the transport, which delivers messages in order. */
  readonly send: (request: Request) => void;
  /** Called after each grant. */
  readonly onGrant: () => void;
  /**
   * Called with the hashes of keys in use whose states were invalidated. To request them at once spares the next
   * verification of each the wait.
   */
  readonly onInvalidated?: (hashes: readonly string[]) => void;
  /** Called when the machine was suspended or a clock was set. The session is closed, and its stream must be, too. */
  readonly onClockJump: () => void;
}

export function createSession(options: SessionOptions): Session {
  const { clock, maxBytes, used = new Set<Uses>(), send, onGrant, onInvalidated, onClockJump } = options;
  const grant = createLocalGrant(clock);
  const states = createKeyStates(maxBytes);
  const pendingById = new Map<number, PendingKey>();
  const pendingByHash = new Map<string, PendingKey>();
  /**
   * The hashes of the secrets that were verified more than once since their last report: to compute one takes half of a
   * verification's time. They are forgotten with the report, because a secret should not stay in memory for long.
   */
  const hashes = new Map<string, string>();
  let lastId = 0;
  let grantedMs = 0;
  let mayHaveImports = true;
  let isOpen = true;
  /** The monotonic time at which the right was last checked. */
  let checkedAt = 0;

  function settleAll(): void {
    for (const pending of [...pendingById.values()]) settle(pending, "unresolved");
  }

  function settle(pending: PendingKey, resolution: Resolution): void {
    pendingById.delete(pending.id);
    pendingByHash.delete(pending.hash);
    pending.settle(resolution);
  }

  function receiveKey({ id, result }: ResolvedKey): void {
    const pending = pendingById.get(id);
    if (pending === undefined) return; // abandoned
    if (result.case === "cached") states.add(pending.hash, result.value, pending.requestedAt);
    settle(pending, resolutionOf[result.case ?? "unresolved"]);
  }

  function invalidate(ids: readonly string[]): void {
    const removed = states.invalidate(ids);
    const usedAfter = clock.monotonic() - refreshed.usedWithinMs;
    const inUse = removed.filter(({ uses }) => uses.lastUsedAt > usedAfter).slice(0, refreshed.max);
    if (inUse.length > 0) onInvalidated?.(inUse.map(({ hash }) => hash));
  }

  function readClocks(): ClockReading {
    return { monotonic: clock.monotonic(), wall: clock.wall() };
  }

  function isUsable({ usableUntil }: KeyState): boolean {
    if (usableUntil.wall === Number.POSITIVE_INFINITY) return true;
    const now = readClocks();
    return now.monotonic < usableUntil.monotonic && now.wall < usableUntil.wall;
  }

  function isGranted(): boolean {
    if (!isOpen) return false;
    checkedAt = clock.monotonic();
    if (grant.remaining(checkedAt) > 0) return true;
    // The clocks are read again, because a pause between two readings looks like a jump.
    if (grant.hasJumped()) endByJump();
    return false;
  }

  function endByJump(): void {
    used.clear(); // the monotonic clock may have stood still, so it is not known how long ago they were
    close();
    onClockJump();
  }

  function reportUses(maxKeys = maxUsed): void {
    if (!isOpen) return;
    const now = clock.monotonic();
    const entries: MessageInitShape<typeof KeyUsesSchema>[] = [];
    let keysLeft = maxKeys;
    for (const uses of used) {
      if (keysLeft-- === 0) break;
      const sha256 = Buffer.from(uses.hash, "binary");
      const lastUsedMsAgo = Math.max(0, Math.round(now - uses.lastUsedAt));
      for (const [code, count] of uses.byCode) entries.push({ sha256, code: codeOf(code), count, lastUsedMsAgo });
      used.delete(uses);
      uses.byCode.clear();
      if (uses.secret !== undefined) hashes.delete(uses.secret);
      uses.secret = undefined;
    }
    while (entries.length > 0) send({ case: "uses", value: { keys: entries.splice(0, maxReported) } });
  }

  function close(): void {
    isOpen = false;
    states.clear();
    hashes.clear();
    for (const uses of used) uses.secret = undefined;
    settleAll();
  }

  return {
    get unansweredPings() {
      return grant.unanswered;
    },
    get cachedKeys() {
      return states.size;
    },
    get usedKeys() {
      return used.size;
    },
    get grantedMs() {
      return grantedMs;
    },
    get mayHaveImports() {
      return mayHaveImports;
    },
    receive({ message }) {
      if (!isOpen) return;
      switch (message.case) {
        case "key":
          return receiveKey(message.value);
        case "invalidate":
          return invalidate(message.value.ids);
        case "invalidateAll":
          states.clear();
          return settleAll();
        case "grant":
          if (!grant.accept(message.value.ping, message.value.remainingMs)) return;
          grantedMs = message.value.remainingMs;
          ({ mayHaveImports } = message.value);
          return onGrant();
        default:
          throw new Error("the service sent a message that this version does not know");
      }
    },
    ping() {
      if (!isOpen) return;
      const number = grant.beginPing();
      if (grant.hasJumped()) endByJump();
      else send({ case: "ping", value: { number } });
    },
    hashOf: (secret) => hashes.get(secret) ?? hashSecret(secret, "binary"),
    isGranted,
    find(hash) {
      // The right is checked before the state is read.
      if (!isGranted()) return undefined;
      const state = states.get(hash);
      if (state === undefined || isUsable(state)) return state;
      states.delete(hash);
      return undefined;
    },
    resolve(hash) {
      const joined = pendingByHash.get(hash);
      if (joined !== undefined) return joined.arrived;
      if (!isOpen || pendingById.size >= maxPending) return Promise.resolve("unresolved");
      lastId = (lastId + 1) % 2 ** 32;
      let settlePending: PendingKey["settle"] = () => {};
      const arrived = new Promise<Resolution>((resolve) => {
        settlePending = resolve;
      });
      const pending = { hash, id: lastId, requestedAt: readClocks(), arrived, settle: settlePending };
      pendingById.set(lastId, pending);
      pendingByHash.set(hash, pending);
      send({ case: "resolve", value: { id: lastId, sha256: Buffer.from(hash, "binary") } });
      return arrived;
    },
    abandon(hash) {
      const pending = pendingByHash.get(hash);
      if (pending !== undefined) settle(pending, "unresolved");
    },
    isResolving: (hash) => pendingByHash.has(hash),
    recordUse(secret, { hash, uses }, code) {
      if (uses.byCode.size === 0) used.add(uses);
      const count = uses.byCode.get(code) ?? 0;
      if (count === 1) {
        uses.secret = copyOf(secret);
        hashes.set(uses.secret, hash);
      }
      uses.byCode.set(code, count + 1);
      uses.lastUsedAt = checkedAt; // a moment ago, by `find`: reading a clock takes a twentieth of a verification's time
      if (used.size >= maxUsed) reportUses(maxReported);
    },
    reportUses,
    close,
  };
}

const codeOf = (name: string) => VerificationCode[name as keyof typeof VerificationCode];

/** A part of a longer text, such as of a header, would keep all of it in memory. */
const copyOf = (text: string) => Buffer.from(text).toString();

const resolutionOf = { cached: "cached", notFound: "not found", unresolved: "unresolved" } as const;
