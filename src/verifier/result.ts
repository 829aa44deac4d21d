import { timestampDate } from "@bufbuild/protobuf/wkt";
import type { Identity } from "../../gen/latchkey/v1/identity_pb.js";
import { VerificationCode, type VerifyKeyResponse } from "../../gen/latchkey/v1/keys_service_pb.js";

/** The result of a verification, with the codes of VerifyKey. Frozen, because it may be shared by several calls. */
export type VerifyResult = ValidKey | InvalidKey;

/** A key that is valid and has the required permissions. */
export interface ValidKey {
  readonly valid: true;
  readonly code: "VALID";
  readonly keyId: string;
  /** The display name of the key. */
  readonly name?: string;
  readonly meta?: Readonly<Record<string, unknown>>;
  /** When the key expires. */
  readonly expires?: Date;
  /** What the key may do in your application. */
  readonly permissions: readonly string[];
  /** The identity that owns or uses the key. */
  readonly identity?: VerifiedIdentity;
}

/** A key that must not be accepted. */
export interface InvalidKey {
  readonly valid: false;
  /** `FORBIDDEN` also stands for codes of a newer service, which this version does not know. */
  readonly code: "NOT_FOUND" | "DISABLED" | "EXPIRED" | "INSUFFICIENT_PERMISSIONS" | "FORBIDDEN";
}

/** The identity of a verified key. */
export interface VerifiedIdentity {
  readonly identityId: string;
  readonly externalId: string;
  readonly meta: Readonly<Record<string, unknown>>;
}

/** Converts a response of VerifyKey. Anything that is not a valid key is refused. */
export function toVerifyResult(response: VerifyKeyResponse): VerifyResult {
  const { valid, code, keyId, name, meta, expires, permissions, identity } = response;
  if (!valid || code !== VerificationCode.VALID || keyId === undefined) {
    const isReason = code !== VerificationCode.VALID && code !== VerificationCode.UNSPECIFIED;
    return invalid((isReason && (VerificationCode[code] as InvalidKey["code"])) || "FORBIDDEN");
  }
  return Object.freeze({
    valid,
    code: "VALID",
    keyId,
    ...(name !== undefined && { name }),
    ...(meta !== undefined && { meta: deepFreeze(meta) }),
    ...(expires !== undefined && { expires: timestampDate(expires) }),
    permissions: Object.freeze([...permissions]),
    ...(identity !== undefined && { identity: toIdentity(identity) }),
  });
}

function toIdentity({ identityId, externalId, meta = {} }: Identity): VerifiedIdentity {
  return Object.freeze({ identityId, externalId, meta: deepFreeze(meta) });
}

function deepFreeze<T>(value: T): T {
  if (typeof value === "object" && value !== null) for (const member of Object.values(value)) deepFreeze(member);
  return Object.freeze(value);
}

const invalidResults = new Map<string, InvalidKey>();

/** One object per code. */
export function invalid(code: InvalidKey["code"]): InvalidKey {
  const existing = invalidResults.get(code);
  if (existing !== undefined) return existing;
  const result: InvalidKey = Object.freeze({ valid: false, code });
  invalidResults.set(code, result);
  return result;
}
