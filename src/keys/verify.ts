import { VerificationCode } from "../../gen/latchkey/v1/keys_service_pb.js";
import { coverageOf } from "../call/permissions.js";
import type { PermissionQuery } from "./permission-query.js";

/** The fields of a key that decide whether it is valid. */
export interface VerifiableKey {
  readonly enabled: boolean;
  readonly expiresAt: Date | null;
  readonly ended: boolean;
  readonly permissions: readonly string[];
}

/** Whether a key has ended or expired. Most keys have no expiry; for these, the clock is not read. */
export function isExpired({ ended, expiresAt }: Pick<VerifiableKey, "ended" | "expiresAt">, now: () => Date): boolean {
  return ended || (expiresAt !== null && expiresAt <= now());
}

/** Verifies a key. Returns the first reason to refuse it, in this order. */
export function verify(
  key: VerifiableKey | undefined,
  query: PermissionQuery | undefined,
  now: () => Date,
): VerificationCode {
  if (key === undefined) return VerificationCode.NOT_FOUND;
  if (!key.enabled) return VerificationCode.DISABLED;
  if (isExpired(key, now)) return VerificationCode.EXPIRED;
  if (query && !query(coverageOf(key.permissions))) return VerificationCode.INSUFFICIENT_PERMISSIONS;
  return VerificationCode.VALID;
}
