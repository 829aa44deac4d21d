import { create, type MessageInitShape } from "@bufbuild/protobuf";
import {
  VerificationCode,
  type VerifyKeyRequest,
  type VerifyKeyResponse,
  VerifyKeyResponseSchema,
} from "../../gen/latchkey/v1/keys_service_pb.js";
import type { RateLimitState } from "../../gen/latchkey/v1/rate_limit_pb.js";
import { type Call, throwIfAborted } from "../call/call.js";
import { type CallContext, callingKey, type KeyCaller } from "../call/context.js";
import { chain, type MaybePromise } from "../call/maybe-promise.js";
import type { CreditSpender } from "../credits/spender.js";
import type { Spent } from "../credits/store.js";
import { hashTagOf } from "../limiter/counter-key.js";
import type { CheckResult, Counters } from "../limiter/counters.js";
import { CallerChanged, isCallerChanged, isCallerUnchanged } from "../revocation/authorized-key.js";
import type { KeyCache } from "../revocation/key-cache.js";
import type { KeyState } from "../revocation/key-state.js";
import type { VerificationCounter } from "../usage/counter.js";
import { toRateLimitState, toVerifyResponse } from "./convert.js";
import { findKey } from "./find-key.js";
import type { LastUsed } from "./last-used.js";
import { createQueryCache, type PermissionQuery } from "./permission-query.js";
import { type AppliedLimit, createLimitResolver } from "./rate-limits.js";
import { hashSecret } from "./secret.js";
import { isExpired, verify } from "./verify.js";

export interface VerificationSources {
  readonly keyCache: Pick<KeyCache, "ensureLease" | "peek" | "get" | "recheck" | "mayHaveImports">;
  readonly lastUsed: Pick<LastUsed, "record">;
  readonly counters: Pick<Counters, "check">;
  readonly credits: CreditSpender;
  readonly usage: Pick<VerificationCounter, "count">;
  /** The clock that expiry is checked against. */
  readonly now: () => Date;
}

/** The handler of VerifyKey. */
export type VerifyKey = (
  request: VerifyKeyRequest,
  context: CallContext,
) => MaybePromise<MessageInitShape<typeof VerifyKeyResponseSchema>>;

/** A call of VerifyKey, parsed. */
interface Verification {
  readonly request: VerifyKeyRequest;
  readonly context: CallContext;
  /** The hash of the secret. */
  readonly hash: string;
  readonly query: PermissionQuery | undefined;
}

/** The rate limits that a verification was counted against. */
interface Counted {
  readonly limits: readonly AppliedLimit[];
  readonly result: CheckResult;
}

/** What a verification has found. */
interface Outcome {
  /** Undefined: there is none, or it was deleted meanwhile. */
  readonly key: KeyState["key"] | undefined;
  readonly code: VerificationCode;
  readonly spent?: Spent;
}

/** A longer text is no secret. It is not even hashed. */
const maxSecretLength = 512;

/**
 * Verifies keys: their state and permissions, then their rate limits, then their credits. A verification that one of these
 * refuses does not reach the next. A cached key without rate limits and credits is verified synchronously.
 */
export function createVerification({
  keyCache,
  lastUsed,
  counters,
  credits,
  usage,
  now,
}: VerificationSources): VerifyKey {
  const queryOf = createQueryCache();
  const limitsOf = createLimitResolver();

  /** What calls have counted whose handler runs again, because their caller has changed. They do not count it again. */
  const countedBefore = new WeakMap<Call, Counted>();

  /** The last response per cached key state. Frozen, so that it is also serialized only once. */
  const responses = new WeakMap<KeyState["key"], VerifyKeyResponse>();

  function responseFor(key: KeyState["key"], code: VerificationCode): VerifyKeyResponse {
    const existing = responses.get(key);
    if (existing?.code === code) return existing;
    const response = Object.freeze(create(VerifyKeyResponseSchema, toVerifyResponse(key, code)));
    // Counted verifications get copies of the response, whose common parts are then also serialized only once.
    if (key.hasCredits || limitsOf(key, []).length > 0) Object.values(response).forEach(Object.freeze);
    responses.set(key, response);
    return response;
  }

  /** Records the verification of a key that exists. */
  function record(key: KeyState["key"], code: VerificationCode, { tags }: VerifyKeyRequest): void {
    if (code === VerificationCode.VALID) lastUsed.record(key, Date.now());
    usage.count(key, code, tags);
  }

  function check(key: KeyState["key"], limits: readonly AppliedLimit[], call: Call): MaybePromise<CheckResult> {
    const { workspaceId } = key;
    throwIfAborted(call);
    return counters.check({ workspaceId, hashTag: hashTagOf(key), uses: limits }, call.span);
  }

  /** Verifies what is counted, for a key that is valid otherwise. */
  function verifyCounted(
    key: KeyState["key"],
    presentLimits: readonly AppliedLimit[],
    verification: Verification,
  ): MaybePromise<VerifyKeyResponse> {
    const { request, context } = verification;
    const before = countedBefore.get(context.call);
    const limits = before?.limits ?? presentLimits;
    const respond = (result: CheckResult | undefined, { key, code, spent }: Outcome): VerifyKeyResponse => {
      if (key === undefined) return notFound;
      record(key, code, request);
      return {
        // A copy of a message is a message. Only these fields differ from call to call.
        ...responseFor(key, VerificationCode.VALID),
        valid: code === VerificationCode.VALID,
        code,
        ...(result && { ratelimits: toStates(limits, result) }),
        ...(spent?.remaining !== undefined && { credits: BigInt(spent.remaining) }),
      };
    };
    const checked = limits.length === 0 ? undefined : (before?.result ?? check(key, limits, context.call));
    return chain(checked, (result) => {
      if (result?.passed === false) return respond(result, { key, code: VerificationCode.RATE_LIMITED });
      if (!key.hasCredits) return respond(result, { key, code: VerificationCode.VALID });
      return spendCredits(key, verification).then(
        (outcome) => respond(result, outcome),
        (error) => {
          if (isCallerChanged(error) && result !== undefined) countedBefore.set(context.call, { limits, result });
          throw error;
        },
      );
    });
  }

  /**
   * Spends credits of a key that is valid otherwise. The spend may wait: it is made only if, when its statement is sent, the
   * caller and the key are as they were authorized and verified.
   */
  async function spendCredits(key: KeyState["key"], verification: Verification): Promise<Outcome> {
    const { request, context, hash, query } = verification;
    const { call } = context;
    const caller = callingKey(context);
    const isCurrent = () =>
      isCallerCurrent(stateInMemory(caller.hash, call), caller) &&
      stateInMemory(hash, call)?.key === key &&
      !hasExpired(key);
    const spent = await credits.spend(call, key.keyId, Number(request.credits?.cost ?? 1n), isCurrent);
    if (spent !== undefined) {
      return { key, code: spent.spent ? VerificationCode.VALID : VerificationCode.USAGE_EXCEEDED, spent };
    }
    if (!isCallerCurrent(await keyCache.recheck(caller.hash, call), caller)) throw new CallerChanged();
    const found = await keyCache.recheck(hash, call);
    const present = found?.key.workspaceId === caller.workspaceId ? found.key : undefined;
    const code = verify(present, query, now);
    return code === VerificationCode.VALID && present?.hasCredits
      ? spendCredits(present, verification)
      : { key: present, code };
  }

  /** Whether a caller is as it was authorized, and has not expired since. */
  function isCallerCurrent(present: KeyState | undefined, caller: KeyCaller): boolean {
    return isCallerUnchanged(present, caller) && !hasExpired(caller);
  }

  /** Whether a key that was valid has expired since. True if the time is not known: one of many spends must not fail the others. */
  function hasExpired({ expiresAt }: Pick<KeyCaller, "expiresAt">): boolean {
    try {
      return isExpired({ ended: false, expiresAt }, now);
    } catch {
      return true;
    }
  }

  /**
   * The present state of a key, if memory can answer at once. If not, because the key was evicted or the lease has ended, a
   * lookup begins, which the next `recheck` shares.
   */
  function stateInMemory(hash: string, call: Call): KeyState | undefined {
    const found = keyCache.recheck(hash, call);
    if (!(found instanceof Promise)) return found;
    found.catch(() => {}); // the next `recheck` reports it
    return undefined;
  }

  return (request, context) => {
    const { workspaceId } = callingKey(context);
    const query = request.permissions === undefined ? undefined : queryOf(request.permissions);
    if (request.key.length > maxSecretLength) return notFound;
    const hash = hashSecret(request.key);
    const found = findKey(keyCache, workspaceId, hash, context.call, request.key);
    return chain(found, (key) => {
      const code = verify(key, query, now);
      if (key === undefined) return notFound;
      const limits = code === VerificationCode.VALID ? limitsOf(key, request.ratelimits) : [];
      if (limits.length > 0 || (code === VerificationCode.VALID && key.hasCredits)) {
        return verifyCounted(key, limits, { request, context, hash, query });
      }
      record(key, code, request);
      return responseFor(key, code);
    });
  };
}

function toStates(limits: readonly AppliedLimit[], { states, perProcess }: CheckResult): RateLimitState[] {
  return states.map((state, index) => toRateLimitState(limits[index] as AppliedLimit, state, perProcess));
}

const notFound = Object.freeze(create(VerifyKeyResponseSchema, { valid: false, code: VerificationCode.NOT_FOUND }));
