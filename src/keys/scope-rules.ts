import type { KeyHolder } from "../call/context.js";
import { covers } from "../call/permissions.js";
import { heirOutlives, keyExceedsCaller, scopeExceedsCaller, selfRaised } from "../errors.js";
import type { KeyChanges, KeyVersion, NewKey } from "./store.js";

// The rules by which a key may act on keys, itself included:
//
// 1. It gives only scopes that it holds.
// 2. It changes, rerolls and deletes only keys that hold no more scopes than itself. So whoever got hold of `keys.update`
//    or `keys.delete` alone cannot lock a workspace out.
// 3. It does not enable or prolong itself.
// 4. It leaves no key with scopes behind that ends later than itself: such a key could act in its place when its time is
//    over. A key without scopes cannot act here, so the keys of customers may outlive the key that made them.

/** Throws if the caller may not create this key. */
export function checkCreation(caller: KeyHolder, key: Pick<NewKey, "scopes" | "expiresAt">): void {
  checkGivenScopes(caller, key.scopes);
  checkEnd(caller, key.scopes, key.expiresAt);
}

/** Throws if the caller does not hold each of these scopes. */
export function checkGivenScopes(caller: KeyHolder, scopes: readonly string[]): void {
  const excess = firstExcess(caller.scopes, scopes);
  if (excess !== undefined) throw scopeExceedsCaller(excess);
}

/** Throws if the caller may not change the key in this way. */
export function checkUpdate(caller: KeyHolder, key: KeyVersion, changes: KeyChanges): void {
  const raises = raisesKey(key, changes);
  // As it is now, not as it was when it was authenticated: it may have been stripped, disabled or shortened since.
  if (raises && isItself(caller, key)) throw selfRaised();
  checkStrength(caller, key);
  const { scopes = key.scopes, expiresAt = key.expiresAt } = changes;
  if (raises) checkEnd(caller, scopes, expiresAt);
}

/** Throws if the caller may not delete the key. */
export function checkDeletion(caller: KeyHolder, key: KeyVersion): void {
  checkStrength(caller, key);
}

/** Throws if the caller may not replace the key. */
export function checkReroll(caller: KeyHolder, key: KeyVersion): void {
  checkStrength(caller, key);
  checkEnd(isItself(caller, key) ? key : caller, key.scopes, key.configuredExpiresAt);
}

function checkStrength(caller: KeyHolder, key: KeyVersion): void {
  if (isItself(caller, key)) return;
  // The error does not name the scope: the caller may not be allowed to know what that key holds.
  if (firstExcess(caller.scopes, key.scopes) !== undefined) throw keyExceedsCaller();
}

function checkEnd(caller: Pick<KeyHolder, "expiresAt">, scopes: readonly string[], expiresAt: Date | null): void {
  if (caller.expiresAt !== null && scopes.length > 0 && isLater(expiresAt, caller.expiresAt)) {
    throw heirOutlives(caller.expiresAt);
  }
}

/** Whether the change lets the key do more, or do it for longer. */
function raisesKey(key: KeyVersion, { enabled, expiresAt, scopes }: KeyChanges): boolean {
  if (enabled === true && !key.enabled) return true;
  if (expiresAt !== undefined && isLater(expiresAt, key.expiresAt)) return true;
  return scopes !== undefined && firstExcess(key.scopes, scopes) !== undefined;
}

function isItself(caller: KeyHolder, key: KeyVersion): boolean {
  return key.keyId === caller.keyId;
}

function firstExcess(held: readonly string[], wanted: readonly string[]): string | undefined {
  return wanted.find((scope) => !covers(held, scope));
}

/** Null is never. */
function isLater(one: Date | null, other: Date | null): boolean {
  return (one ?? never) > (other ?? never);
}

const never = Number.POSITIVE_INFINITY;
