import { VerificationCode } from "../../gen/latchkey/v1/keys_service_pb.js";
import { covers } from "../call/permissions.js";
import type { PermissionQuery } from "./permission-query.js";

/** What a key is judged by. */
export interface Judged {
  readonly enabled: boolean;
  readonly expiresAt: Date | null;
  readonly ended: boolean;
  readonly permissions: readonly string[];
}

/** Whether a key has ended, or is past its expiry. Most keys have none: then nobody asks for the time. */
export function isOver({ ended, expiresAt }: Pick<Judged, "ended" | "expiresAt">, now: () => Date): boolean {
  return ended || (expiresAt !== null && expiresAt <= now());
}

/** Judges a key: the first reason to refuse it speaks. */
export function verify(key: Judged | undefined, query: PermissionQuery | undefined, now: () => Date): VerificationCode {
  if (key === undefined) return VerificationCode.NOT_FOUND;
  if (!key.enabled) return VerificationCode.DISABLED;
  if (isOver(key, now)) return VerificationCode.EXPIRED;
  const { permissions } = key;
  if (query && !query((permission) => covers(permissions, permission)))
    return VerificationCode.INSUFFICIENT_PERMISSIONS;
  return VerificationCode.VALID;
}
