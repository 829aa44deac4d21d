import { timestampDate } from "@bufbuild/protobuf/wkt";
import type { Identity } from "../../gen/latchkey/v1/identity_pb.js";
import { VerificationCode, type VerifyKeyResponse } from "../../gen/latchkey/v1/keys_service_pb.js";
import type { RateLimitState as RateLimitStateMessage } from "../../gen/latchkey/v1/rate_limit_pb.js";

/** The result of a verification, with the codes of VerifyKey. Frozen, because it may be shared by several calls. */
export type VerifyResult = ValidKey | InvalidKey;

/** A key that is valid and has the required permissions. */
export interface ValidKey extends VerifiedKey {
  readonly valid: true;
  readonly code: "VALID";
}

/** A key that must not be accepted. Of one that does not exist, only the code is known. */
export interface InvalidKey extends Partial<VerifiedKey> {
  readonly valid: false;
  /** `FORBIDDEN` also stands for codes of a newer service, which this version does not know. */
  readonly code:
    | "NOT_FOUND"
    | "DISABLED"
    | "EXPIRED"
    | "INSUFFICIENT_PERMISSIONS"
    | "RATE_LIMITED"
    | "USAGE_EXCEEDED"
    | "FORBIDDEN";
}

/** A key that exists. */
export interface VerifiedKey {
  readonly keyId: string;
  /** The display name of the key. */
  readonly name?: string;
  readonly meta?: Readonly<Record<string, unknown>>;
  /** When the key expires. */
  readonly expires?: Date;
  /** What the key may do in your application, with the permissions of its roles. */
  readonly permissions: readonly string[];
  /** The names of its roles. */
  readonly roles: readonly string[];
  /** The identity that owns or uses the key. */
  readonly identity?: VerifiedIdentity;
  /** The rate limits that were checked, in the order of their names. Unset: none was. */
  readonly ratelimits?: readonly RateLimitState[];
  /** How many credits are left. Unset: the key needs none, or was refused before they were checked. */
  readonly credits?: number;
}

/** The identity of a verified key. */
export interface VerifiedIdentity {
  readonly identityId: string;
  readonly externalId: string;
  readonly meta: Readonly<Record<string, unknown>>;
}

/** The state of a rate limit after a verification. If one limit is exceeded, none of them counts the verification. */
export interface RateLimitState {
  /** The name, if only the verification defines the limit. */
  readonly id: string;
  readonly name: string;
  /** How much may be used in one window. */
  readonly limit: number;
  /** The length of a window in milliseconds. */
  readonly duration: number;
  /** Whether every verification counts. */
  readonly autoApply: boolean;
  /** Whether this limit refused the verification. */
  readonly exceeded: boolean;
  /** How much is left in the current window. */
  readonly remaining: number;
  /** When the current window ends, by the clock of the service. */
  readonly reset: Date;
  /** Whether each process of the service counts separately, because it cannot use Redis for it. */
  readonly perProcess: boolean;
}

/**
 * Converts a response of VerifyKey. Anything that is not a valid key is refused.
 *
 * @internal
 */
export function toVerifyResult(response: VerifyKeyResponse): VerifyResult {
  const { valid, code, keyId } = response;
  if (valid && code === VerificationCode.VALID && keyId !== undefined) {
    return Object.freeze({ valid, code: "VALID", ...toVerifiedKey(keyId, response) });
  }
  const isReason = code !== VerificationCode.VALID && code !== VerificationCode.UNSPECIFIED;
  const reason = (isReason && (VerificationCode[code] as InvalidKey["code"] | undefined)) || "FORBIDDEN";
  if (keyId === undefined) return invalid(reason);
  return Object.freeze({ valid: false, code: reason, ...toVerifiedKey(keyId, response) });
}

/** The result for a valid key without the required permissions. */
export function withoutPermission(key: ValidKey): InvalidKey {
  return Object.freeze({ ...key, valid: false, code: "INSUFFICIENT_PERMISSIONS" });
}

function toVerifiedKey(keyId: string, response: VerifyKeyResponse): VerifiedKey {
  const { name, meta, expires, permissions, roles, identity, ratelimits, credits } = response;
  return {
    keyId,
    ...(name !== undefined && { name }),
    ...(meta !== undefined && { meta: deepFreeze(meta) }),
    ...(expires !== undefined && { expires: timestampDate(expires) }),
    permissions: Object.freeze([...permissions]),
    roles: Object.freeze([...roles]),
    ...(identity !== undefined && { identity: toIdentity(identity) }),
    ...(ratelimits.length > 0 && { ratelimits: Object.freeze(ratelimits.map(toRateLimitState)) }),
    ...(credits !== undefined && { credits: Number(credits) }),
  };
}

function toIdentity({ identityId, externalId, meta = {} }: Identity): VerifiedIdentity {
  return Object.freeze({ identityId, externalId, meta: deepFreeze(meta) });
}

function toRateLimitState(state: RateLimitStateMessage): RateLimitState {
  const { id, name, limit, duration, autoApply, exceeded, remaining, reset, perProcess = false } = state;
  return Object.freeze({
    id,
    name,
    limit: Number(limit),
    duration: Number(duration),
    autoApply,
    exceeded,
    remaining: Number(remaining),
    reset: reset ? timestampDate(reset) : new Date(0),
    perProcess,
  });
}

function deepFreeze<T>(value: T): T {
  if (typeof value === "object" && value !== null) for (const member of Object.values(value)) deepFreeze(member);
  return Object.freeze(value);
}

const invalidResults = new Map<string, InvalidKey>();

/** The result without the data of a key. One object per code. */
export function invalid(code: InvalidKey["code"]): InvalidKey {
  const existing = invalidResults.get(code);
  if (existing !== undefined) return existing;
  const result: InvalidKey = Object.freeze({ valid: false, code });
  invalidResults.set(code, result);
  return result;
}
