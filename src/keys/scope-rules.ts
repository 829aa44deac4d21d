import type { KeyCaller } from "../call/context.js";
import { coverageOf } from "../call/permissions.js";
import { expiryExceedsCaller, invalidInput, keyExceedsCaller, scopeExceedsCaller, selfEscalation } from "../errors.js";
import type { KeyChanges, KeyVersion, NewKey } from "./rows.js";

// What a key may do with keys, itself included:
//
// 1. It grants only scopes that it has.
// 2. It changes, rerolls and deletes only keys with no more scopes than its own. So an attacker with `keys.update` or
//    `keys.delete` alone cannot lock a workspace out.
// 3. It neither enables itself nor extends its own expiry.
// 4. It leaves no key with scopes that expires later than itself. An attacker could use such a key after the caller's
//    key has expired. A key without scopes cannot call this service, so customers' keys may outlive the key that
//    created them.

/** Throws if the caller may not create this key. */
export function checkCreation(caller: KeyCaller, key: Pick<NewKey, "scopes" | "expiresAt">): void {
  checkGrantedScopes(caller, key.scopes);
  checkExpiry(caller, key.scopes, key.expiresAt);
}

/** Throws if the caller lacks one of these scopes. */
export function checkGrantedScopes(caller: KeyCaller, scopes: readonly string[]): void {
  const excess = firstExcess(caller.scopes, scopes);
  if (excess !== undefined) throw scopeExceedsCaller(excess);
}

/** Throws if the caller may not make these changes to the key. */
export function checkUpdate(caller: KeyCaller, key: KeyVersion, changes: KeyChanges): void {
  const grantsMore = changeGrantsMore(key, changes);
  // Compared with the key's state now, not at authentication: its scopes, `enabled` or expiry may have been reduced.
  if (grantsMore && isCaller(caller, key)) throw selfEscalation();
  checkScopesOf(caller, key);
  const { scopes = key.scopes, expiresAt = key.expiresAt } = changes;
  if (grantsMore) checkExpiry(caller, scopes, expiresAt);
  if (scopes.length > 0 && key.start === "") throw scopesOfImportedKey();
}

/**
 * Whether the caller may make these changes to any key that has no scopes. Not to itself: its scopes may have been removed
 * since it was authorized.
 */
export function needsNoCheck(caller: KeyCaller, keyId: string, { scopes = [] }: Pick<KeyChanges, "scopes">): boolean {
  return keyId !== caller.keyId && scopes.length === 0;
}

/** Throws if the caller may not delete the key. */
export function checkDeletion(caller: KeyCaller, key: KeyVersion): void {
  checkScopesOf(caller, key);
}

/** Throws if the caller may not reroll the key. */
export function checkReroll(caller: KeyCaller, key: KeyVersion): void {
  checkScopesOf(caller, key);
  checkExpiry(isCaller(caller, key) ? key : caller, key.scopes, key.configuredExpiresAt);
}

/** Other services may have issued secrets that are easier to guess, so an imported key cannot call this service. */
function scopesOfImportedKey() {
  const message = "cannot be given to an imported key; reroll it first";
  return invalidInput([{ location: "scopes", message }]);
}

/** Rule 2. */
function checkScopesOf(caller: KeyCaller, key: KeyVersion): void {
  if (isCaller(caller, key)) return;
  // The error does not name the scope: the caller may not be allowed to know the scopes of that key.
  if (firstExcess(caller.scopes, key.scopes) !== undefined) throw keyExceedsCaller();
}

/** Rule 4. */
function checkExpiry(caller: Pick<KeyCaller, "expiresAt">, scopes: readonly string[], expiresAt: Date | null): void {
  if (caller.expiresAt !== null && scopes.length > 0 && isLater(expiresAt, caller.expiresAt)) {
    throw expiryExceedsCaller(caller.expiresAt);
  }
}

/** Whether the change adds scopes, enables the key or extends its expiry. */
function changeGrantsMore(key: KeyVersion, { enabled, expiresAt, scopes }: KeyChanges): boolean {
  if (enabled === true && !key.enabled) return true;
  if (expiresAt !== undefined && isLater(expiresAt, key.expiresAt)) return true;
  return scopes !== undefined && firstExcess(key.scopes, scopes) !== undefined;
}

function isCaller(caller: KeyCaller, key: KeyVersion): boolean {
  return key.keyId === caller.keyId;
}

function firstExcess(granted: readonly string[], requested: readonly string[]): string | undefined {
  const isCovered = coverageOf(granted);
  return requested.find((scope) => !isCovered(scope));
}

/** Null means that the key never expires. */
function isLater(one: Date | null, other: Date | null): boolean {
  return (one ?? never) > (other ?? never);
}

const never = Number.POSITIVE_INFINITY;
