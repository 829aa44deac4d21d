import { timingSafeEqual } from "node:crypto";
import type { Call } from "../call/call.js";
import type { KeyCaller, Operator, Principal } from "../call/context.js";
import { bearerToken } from "../call/credential.js";
import { chain, type MaybePromise } from "../call/maybe-promise.js";
import type { OperatorCredential } from "../call/operators.js";
import {
  keyDisabled,
  keyExpired,
  malformedCredential,
  missingCredential,
  unknownKey,
  workspaceDisabled,
} from "../errors.js";
import type { LastUsed } from "../keys/last-used.js";
import { hashSecret, isWellFormedSecret } from "../keys/secret.js";
import { isExpired } from "../keys/verify.js";
import type { KeyCache } from "../revocation/key-cache.js";
import type { KeyState } from "../revocation/key-state.js";

/** Determines the caller from the Authorization headers of a call, or refuses it. Every protocol uses it. */
export type Authenticate = (call: Call, authorization: readonly string[]) => MaybePromise<Principal>;

/** Authenticates a call when its headers have arrived, and again before it has any effect. */
export interface Authentication {
  readonly authenticate: Authenticate;
  /**
   * The caller in its present state. Refuses a caller that was revoked since. The call does not count as another use.
   */
  recheck(call: Call, caller: Principal): MaybePromise<Principal>;
  /** The same from PostgreSQL alone, for a caller that a statement has found changed. */
  reread(call: Call, caller: Principal): MaybePromise<Principal>;
}

/** The credential of a call, parsed and hashed. */
interface Credential {
  readonly header: string;
  readonly token: string;
  readonly hash: string;
  /** The operator that it belongs to; undefined for a key. */
  readonly operator: Operator | undefined;
}

/** @param now the time that decides whether a key has expired */
export function createAuthentication(
  operators: readonly OperatorCredential[],
  keyCache: KeyCache,
  lastUsed: Pick<LastUsed, "record">,
  now: () => Date,
): Authentication {
  const operatorHashes = operators.map(({ actor, key }) => ({
    operator: { kind: "operator", actor } satisfies Operator,
    hash: Buffer.from(hashSecret(key)),
  }));

  // Most connections send the same credential with every call. Its parsed form is cached for the lifetime of the
  // connection, and no longer. Whether the credential was accepted is not cached.
  const lastCredential = new WeakMap<object, Credential>();

  return {
    authenticate(call, authorization) {
      const { token, hash, operator } = credentialOf(singleHeader(authorization), call.connection);
      if (operator !== undefined) return chain(keyCache.ensureLease(), () => operator);
      const cached = keyCache.peek(hash);
      // An imported key has no scopes, and its secret may have any form. It is refused whether it is cached or not.
      if (cached !== undefined && (cached.key.scopes.length > 0 || isWellFormedSecret(token))) {
        return acceptKey(cached, hash);
      }
      // A text that cannot be a secret of this service is not looked up.
      if (!isWellFormedSecret(token)) {
        throw malformedCredential(
          "The credential is not an API key: its form or its checksum is wrong. Copy it again.",
        );
      }
      return chain(keyCache.get(hash, call), (found) => acceptKey(found, hash));
    },
    recheck(call, caller) {
      if (caller.kind === "operator") return caller;
      return chain(keyCache.recheck(caller.hash, call), (found) => currentCaller(caller, found));
    },
    reread(call, caller) {
      if (caller.kind === "operator") return caller;
      return chain(keyCache.readThrough(caller.hash, call), (found) => currentCaller(caller, found));
    },
  };

  function credentialOf(header: string, connection: object | undefined): Credential {
    const last = connection && lastCredential.get(connection);
    if (last?.header === header) return last;
    const token = bearerToken(header);
    const hash = hashSecret(token);
    const credential = { header, token, hash, operator: operatorOf(Buffer.from(hash)) };
    // An operator's credential is not compared with `===` at the next call. The longer a matching prefix is, the
    // longer `===` takes, which would reveal the credential through timing.
    if (connection !== undefined && credential.operator === undefined) lastCredential.set(connection, credential);
    return credential;
  }

  /** Compares with all of them, also after a match: the time does not depend on which one it is. */
  function operatorOf(hash: Buffer): Operator | undefined {
    let found: Operator | undefined;
    for (const each of operatorHashes) if (timingSafeEqual(hash, each.hash)) found = each.operator;
    return found;
  }

  function acceptKey(found: KeyState | undefined, hash: string): KeyCaller {
    const key = usableKey(found, now);
    lastUsed.record(key, Date.now());
    return holderOf(key, hash);
  }

  function currentCaller(caller: KeyCaller, found: KeyState | undefined): KeyCaller {
    const key = usableKey(found, now);
    // The same array means the same cached key, so nothing has changed.
    return key.scopes === caller.scopes ? caller : holderOf(key, caller.hash);
  }
}

/** The order is part of the API contract: the workspace is checked before the key. */
function usableKey(found: KeyState | undefined, now: () => Date): KeyState["key"] {
  if (found === undefined) throw unknownKey();
  if (!found.workspaceEnabled) throw workspaceDisabled();
  const { key } = found;
  if (!key.enabled) throw keyDisabled();
  if (isExpired(key, now)) throw keyExpired();
  return key;
}

function holderOf({ keyId, workspaceId, scopes, expiresAt }: KeyState["key"], hash: string): KeyCaller {
  return { kind: "key", keyId, workspaceId, scopes, expiresAt, hash };
}

function singleHeader(authorization: readonly string[]): string {
  const header = authorization[0];
  if (header === undefined) throw missingCredential();
  if (authorization.length > 1) throw malformedCredential("The request carries more than one Authorization header.");
  return header;
}
