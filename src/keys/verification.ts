import { create, type MessageInitShape } from "@bufbuild/protobuf";
import {
  VerificationCode,
  type VerifyKeyRequest,
  type VerifyKeyResponse,
  VerifyKeyResponseSchema,
} from "../../gen/latchkey/v1/keys_service_pb.js";
import type { RateLimitState } from "../../gen/latchkey/v1/rate_limit_pb.js";
import { type Call, throwIfAborted } from "../call/call.js";
import { type CallContext, callingKey } from "../call/context.js";
import { chain, type MaybePromise } from "../call/maybe-promise.js";
import type { CreditSpender } from "../credits/spender.js";
import type { Spent } from "../credits/store.js";
import { hashTagOf } from "../limiter/counter-key.js";
import type { CheckResult, Counters } from "../limiter/counters.js";
import type { KeyCache } from "../revocation/key-cache.js";
import type { KeyState } from "../revocation/key-state.js";
import type { VerificationCounter } from "../usage/counter.js";
import { toRateLimitState, toVerifyResponse } from "./convert.js";
import { findKey } from "./find-key.js";
import type { LastUsed } from "./last-used.js";
import { createQueryCache } from "./permission-query.js";
import { type AppliedLimit, createLimitResolver } from "./rate-limits.js";
import { hashSecret } from "./secret.js";
import { verify } from "./verify.js";

export interface VerificationSources {
  readonly keyCache: Pick<KeyCache, "peek" | "get" | "mayHaveImports">;
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

  /** The last response per cached key state. Frozen, so that it is also serialized only once. */
  const responses = new WeakMap<KeyState["key"], VerifyKeyResponse>();

  function responseFor(key: KeyState["key"], code: VerificationCode): VerifyKeyResponse {
    const existing = responses.get(key);
    if (existing?.code === code) return existing;
    const response = Object.freeze(create(VerifyKeyResponseSchema, toVerifyResponse(key, code)));
    responses.set(key, response);
    return response;
  }

  /** Records the verification of a key that exists. */
  function record(key: KeyState["key"], code: VerificationCode, { tags }: VerifyKeyRequest): void {
    if (code === VerificationCode.VALID) lastUsed.record(key.keyId, Date.now());
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
    limits: readonly AppliedLimit[],
    request: VerifyKeyRequest,
    call: Call,
  ): MaybePromise<VerifyKeyResponse> {
    const respond = (code: VerificationCode, result: CheckResult | undefined, spent?: Spent): VerifyKeyResponse => {
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
    const checked = limits.length === 0 ? undefined : check(key, limits, call);
    return chain(checked, (result) => {
      if (result?.passed === false) return respond(VerificationCode.RATE_LIMITED, result);
      if (!key.hasCredits) return respond(VerificationCode.VALID, result);
      return credits.spend(call, key.keyId, Number(request.credits?.cost ?? 1n)).then((spent) => {
        return respond(spent.spent ? VerificationCode.VALID : VerificationCode.USAGE_EXCEEDED, result, spent);
      });
    });
  }

  return (request, context) => {
    const { workspaceId } = callingKey(context);
    const query = request.permissions === undefined ? undefined : queryOf(request.permissions);
    if (request.key.length > maxSecretLength) return notFound;
    const found = findKey(keyCache, workspaceId, hashSecret(request.key), context.call, request.key);
    return chain(found, (key) => {
      const code = verify(key, query, now);
      if (key === undefined) return notFound;
      const limits = code === VerificationCode.VALID ? limitsOf(key, request.ratelimits) : [];
      if (limits.length > 0 || (code === VerificationCode.VALID && key.hasCredits)) {
        return verifyCounted(key, limits, request, context.call);
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
