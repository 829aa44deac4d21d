import { timingSafeEqual } from "node:crypto";
import type { Call } from "../call/call.js";
import type { KeyHolder, Operator, Principal } from "../call/context.js";
import { bearerToken } from "../call/credential.js";
import { chain, type MaybePromise } from "../call/maybe-promise.js";
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
import { isOver } from "../keys/verify.js";
import type { KeyCache } from "../revocation/key-cache.js";
import type { KeyState } from "../revocation/key-state.js";

/** Turns the Authorization headers of a call into the one who is calling, or refuses. Stands behind every protocol. */
export type Authenticate = (call: Call, authorization: readonly string[]) => MaybePromise<Principal>;

/** Who calls: asked when the headers of a call are there, and again before it has any effect. */
export interface Authentication {
  readonly authenticate: Authenticate;
  /** The caller as it stands now; refuses one that was revoked since. The call is not counted as another use. */
  recheck(call: Call, caller: Principal): MaybePromise<Principal>;
  /** The same by Postgres alone, for a caller that a statement has found changed. */
  reread(call: Call, caller: Principal): MaybePromise<Principal>;
}

/** What was brought to prove who is calling. */
interface Credential {
  readonly header: string;
  readonly token: string;
  readonly hash: string;
  readonly isOperator: boolean;
}

/** @param now the time that expiry is judged by */
export function createAuthentication(
  operatorKey: string,
  holdings: KeyCache,
  lastUsed: Pick<LastUsed, "record">,
  now: () => Date,
): Authentication {
  const operator: Operator = { kind: "operator" };
  const operatorHash = Buffer.from(hashSecret(operatorKey));

  // Most connections bring the same credential with every call. What was made of it lives as long as they do, and no
  // longer; nothing is remembered of whether it was good.
  const lastBrought = new WeakMap<object, Credential>();

  return {
    authenticate(call, authorization) {
      const { token, hash, isOperator } = credentialOf(onlyHeader(authorization), call.connection);
      if (isOperator) return chain(holdings.ensureLease(), () => operator);
      const held = holdings.peek(hash);
      if (held !== undefined) return acceptKey(held, hash);
      // A text that cannot be a secret of ours is not looked up.
      if (!isWellFormedSecret(token)) {
        throw malformedCredential(
          "The credential is not an API key: its form or its checksum is wrong. Copy it again.",
        );
      }
      return chain(holdings.get(hash, call), (found) => acceptKey(found, hash));
    },
    recheck(call, caller) {
      if (caller.kind === "operator") return caller;
      return chain(holdings.recheck(caller.hash, call), (found) => presentCaller(caller, found));
    },
    reread(call, caller) {
      if (caller.kind === "operator") return caller;
      return chain(holdings.readThrough(caller.hash, call), (found) => presentCaller(caller, found));
    },
  };

  function credentialOf(header: string, connection: object | undefined): Credential {
    const last = connection && lastBrought.get(connection);
    if (last?.header === header) return last;
    const token = bearerToken(header);
    const hash = hashSecret(token);
    const credential = { header, token, hash, isOperator: timingSafeEqual(Buffer.from(hash), operatorHash) };
    // The operator's is not compared with what comes next: `===` takes the longer, the more of it is right.
    if (connection !== undefined && !credential.isOperator) lastBrought.set(connection, credential);
    return credential;
  }

  function acceptKey(found: KeyState | undefined, hash: string): KeyHolder {
    const key = usableKey(found, now);
    lastUsed.record(key.keyId, Date.now());
    return holderOf(key, hash);
  }

  function presentCaller(caller: KeyHolder, found: KeyState | undefined): KeyHolder {
    const key = usableKey(found, now);
    // Of a key that is cached as before, nothing has changed.
    return key.scopes === caller.scopes ? caller : holderOf(key, caller.hash);
  }
}

/** The order is part of the contract: of workspace and key, the workspace speaks first. */
function usableKey(found: KeyState | undefined, now: () => Date): KeyState["key"] {
  if (found === undefined) throw unknownKey();
  if (!found.workspaceEnabled) throw workspaceDisabled();
  const { key } = found;
  if (!key.enabled) throw keyDisabled();
  if (isOver(key, now)) throw keyExpired();
  return key;
}

function holderOf({ keyId, workspaceId, scopes, expiresAt }: KeyState["key"], hash: string): KeyHolder {
  return { kind: "key", keyId, workspaceId, scopes, expiresAt, hash };
}

function onlyHeader(authorization: readonly string[]): string {
  const header = authorization[0];
  if (header === undefined) throw missingCredential();
  if (authorization.length > 1) throw malformedCredential("The request carries more than one Authorization header.");
  return header;
}
