import { create, type MessageInitShape } from "@bufbuild/protobuf";
import { Code } from "@connectrpc/connect";
import { VerificationCode } from "../../gen/latchkey/v1/keys_service_pb.js";
import {
  type DelegateRequest,
  DelegateResponseSchema,
  type KeyUses,
  type ResolveKey,
} from "../../gen/latchkey/v1/verifier_service_pb.js";
import type { KeyCaller } from "../call/context.js";
import type { ServerStream, StreamCaller, StreamChannel } from "../call/stream.js";
import { type ApiError, grpcStatusOf, invalidInput, serviceUnavailable } from "../errors.js";
import { toVerifyResponse } from "../keys/convert.js";
import { findKey } from "../keys/find-key.js";
import type { LastUsed } from "../keys/last-used.js";
import { verify } from "../keys/verify.js";
import type { KeyCache } from "../revocation/key-cache.js";
import { type KeyState, rowsOf } from "../revocation/key-state.js";
import type { Lease } from "../revocation/lease.js";
import type { LookupLimit } from "../revocation/lookup-limit.js";
import type { VerificationCounter } from "../usage/counter.js";

/** The stream of a client that verifies keys in its own process. */
export interface VerifierStream extends ServerStream<DelegateRequest> {
  /** Sends a grant for the last ping, as soon as the lease and the caller allow it. */
  grant(): void;
  /** @param message the invalidation of single rows */
  invalidate(message: ResponseMessage): void;
  invalidateAll(): void;
  end(error: ApiError): void;
}

type ResponseMessage = MessageInitShape<typeof DelegateResponseSchema>;

type Response = NonNullable<ResponseMessage["message"]>;

interface Sources {
  readonly lease: Pick<Lease, "remaining" | "databaseTime">;
  readonly keyCache: Pick<KeyCache, "ensureLease" | "peek" | "get" | "mayHaveImports">;
  readonly lastUsed: Pick<LastUsed, "record">;
  readonly counter: Pick<VerificationCounter, "count">;
  readonly lookups: LookupLimit;
  /** Counts reported verifications, by code. */
  readonly verifications: Record<string, number>;
}

/** A client reports uses every few seconds. An older time is a mistake, and is limited to this. */
const maxUseAgeMs = 3_600_000;

export function createVerifierStream(
  channel: StreamChannel<ResponseMessage>,
  caller: StreamCaller,
  { lease, keyCache, lastUsed, counter, lookups, verifications }: Sources,
  onClosed: () => void,
): VerifierStream {
  const { workspaceId } = caller;
  /** The highest ping without a grant. */
  let unanswered: number | undefined;
  let lastPing = -1;
  /** Messages were dropped, because the client reads too slowly. The next message must be `invalidateAll`. */
  let mustInvalidateAll = false;
  let isRechecking = false;
  let isOpen = true;

  const send = (message: Response) => sendMessage({ message });

  /** Returns whether the message was sent. */
  function sendMessage(message: ResponseMessage): boolean {
    if (!isOpen) return false;
    if (channel.isCongested()) {
      mustInvalidateAll = true;
      return false;
    }
    if (mustInvalidateAll) channel.send(invalidateAllMessage);
    mustInvalidateAll = false;
    channel.send(message);
    return true;
  }

  function end(error: ApiError): void {
    if (!isOpen) return;
    close();
    channel.end(error);
  }

  function close(): void {
    isOpen = false;
    onClosed();
  }

  /**
   * Calls `use` in the turn of the event loop in which the caller was found unrevoked. Ends the stream if the caller was
   * revoked. If that cannot be known now, the next renewal of the lease tries again.
   */
  function recheckCaller(use: (current: KeyCaller) => void, isRetry = false): void {
    if (isRechecking || !isOpen) return;
    try {
      const rechecked = caller.recheck();
      if (!(rechecked instanceof Promise)) {
        use(rechecked);
        return;
      }
      isRechecking = true;
      rechecked
        .finally(() => {
          isRechecking = false;
        })
        // The result may be outdated already, so the caller is read again, from memory.
        .then(() => isRetry || recheckCaller(use, true))
        .catch(recheckFailed);
    } catch (error) {
      recheckFailed(error);
    }
  }

  function recheckFailed(thrown: unknown): void {
    const error = caller.toApiError(thrown);
    if (grpcStatusOf(error.code) !== Code.Unavailable) end(error);
  }

  function grant(): void {
    if (unanswered !== undefined) recheckCaller(sendGrant);
  }

  function sendGrant({ expiresAt }: KeyCaller): void {
    const msToExpiry = expiresAt === null ? Number.POSITIVE_INFINITY : timeUntil(expiresAt);
    const remainingMs = Math.floor(Math.min(lease.remaining(), msToExpiry));
    if (remainingMs <= 0 || unanswered === undefined) return;
    const mayHaveImports = keyCache.mayHaveImports(workspaceId);
    if (send({ case: "grant", value: { ping: unanswered, remainingMs, mayHaveImports } })) unanswered = undefined;
  }

  /** How long a key still lasts at least. Throws if the database's time is not known. */
  function timeUntil(expiresAt: Date): number {
    return expiresAt.getTime() - lease.databaseTime().getTime();
  }

  /** Sends the state of a key, which must be current in this turn of the event loop. */
  function sendKey(id: number, key: KeyState["key"]): void {
    const code = verify(key, undefined, lease.databaseTime);
    const isValid = code === VerificationCode.VALID;
    const result = toVerifyResponse(key, code);
    const validForMs = isValid && key.expiresAt !== null ? wholeMs(timeUntil(key.expiresAt)) : undefined;
    const verifyRemotely = isCounted(key);
    const cached = { result, dependsOn: rowsOf(key), verifyRemotely, ...(validForMs !== undefined && { validForMs }) };
    send({ case: "key", value: { id, result: { case: "cached", value: cached } } });
  }

  function resolve({ id, sha256 }: ResolveKey): void {
    const hash = Buffer.from(sha256).toString("hex");
    lookUp(hash)
      .then((found) => sendCurrent(id, hash, found))
      .catch(() => send({ case: "key", value: { id, result: { case: "unresolved", value: {} } } }));
  }

  /** Looks up a key on behalf of the caller, which counts against the rate limit of the workspace. */
  async function lookUp(hash: string): Promise<KeyState["key"] | undefined> {
    return lookups.run(workspaceId, async () => {
      await caller.admit();
      return findKey(keyCache, workspaceId, hash, caller.newCall());
    });
  }

  /** @param found the result of a lookup, which may be outdated already */
  function sendCurrent(id: number, hash: string, found: KeyState["key"] | undefined): void {
    if (found === undefined) {
      send({ case: "key", value: { id, result: { case: "notFound", value: {} } } });
      return;
    }
    const current = keyCache.peek(hash);
    if (current === undefined) throw serviceUnavailable(new Error("the key has changed since its lookup"));
    sendKey(id, current.key);
  }

  function recordUses({ sha256, code, count, lastUsedMsAgo }: KeyUses): void {
    if (code === VerificationCode.NOT_FOUND) return; // a report is about a key
    const hash = Buffer.from(sha256).toString("hex");
    const usedAt = Date.now() - Math.min(lastUsedMsAgo, maxUseAgeMs);
    const cached = keyCache.peek(hash)?.key;
    // A key in memory is no lookup, so it does not count against the rate limit.
    const found = cached?.workspaceId === workspaceId ? Promise.resolve(cached) : lookUp(hash);
    found.then(
      (key) => {
        // A client must not raise the metric of the installation by hashes that it has invented.
        if (key === undefined) return;
        const name = VerificationCode[code] as string;
        verifications[name] = (verifications[name] ?? 0) + count;
        counter.count(key, code, [], count);
        if (code === VerificationCode.VALID) lastUsed.record(key, usedAt);
      },
      () => {}, // the report is lost, like the verifications before a crash
    );
  }

  return {
    receive({ message }) {
      if (!isOpen) return;
      if (message.case === "ping") {
        const { number } = message.value;
        if (number <= lastPing) return end(invalidPing());
        lastPing = number;
        unanswered = number;
        grant();
      } else if (message.case === "resolve") {
        resolve(message.value);
      } else if (message.case === "uses") {
        for (const uses of message.value.keys) recordUses(uses);
      }
    },
    closed() {
      if (isOpen) close();
    },
    grant,
    // The change may be one of the caller. Its stream then ends at once, and not only with its next ping.
    invalidate(message) {
      sendMessage(message);
      recheckCaller(() => {});
    },
    invalidateAll() {
      sendMessage(invalidateAllMessage);
      recheckCaller(() => {});
    },
    end,
  };
}

/** Whether each verification of a key counts against a limit that only the service knows: credits, or a rate limit. */
function isCounted({ hasCredits, ratelimits, identityId, identityRatelimits }: KeyState["key"]): boolean {
  // Without an identity, the columns of the identity are null.
  const limits = identityId === null ? ratelimits : [...ratelimits, ...identityRatelimits];
  return hasCredits || limits.some(({ autoApply }) => autoApply);
}

const invalidateAllMessage = Object.freeze(
  create(DelegateResponseSchema, { message: { case: "invalidateAll", value: {} } }),
);

/** Rounds down. The time may have ended since it was compared. */
const wholeMs = (ms: number) => BigInt(Math.max(0, Math.floor(ms)));

const invalidPing = () =>
  invalidInput([{ location: "ping.number", message: "must be higher than that of every earlier ping" }]);
