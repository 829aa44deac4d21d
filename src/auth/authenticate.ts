import { timingSafeEqual } from "node:crypto";
import {
  credentialMalformed,
  credentialMissing,
  keyDisabled,
  keyExpired,
  keyUnknown,
  workspaceDisabled,
} from "../errors.js";
import type { LastUsed } from "../keys/last-used.js";
import { hashSecret, isWellFormedSecret } from "../keys/secret.js";
import { after, type Soon } from "../soon.js";
import type { Holdings, Standing } from "./holdings.js";
import type { Operator, Principal } from "./principal.js";

/** Turns the Authorization headers of a call into the one who is calling, or refuses. Stands behind every door. */
export type Authenticate = (authorization: readonly string[]) => Soon<Principal>;

export function createAuthenticate(
  operatorKey: string,
  holdings: Holdings,
  lastUsed: Pick<LastUsed, "record">,
  now: () => Date,
): Authenticate {
  const operator: Operator = { kind: "operator" };
  const operatorHash = Buffer.from(hashSecret(operatorKey));

  return (authorization) => {
    const token = bearerToken(authorization);
    const hash = hashSecret(token);
    if (timingSafeEqual(Buffer.from(hash), operatorHash)) return after(holdings.ready(), () => operator);
    if (!isWellFormedSecret(token)) {
      throw credentialMalformed("The credential is not an API key: its form or its checksum is wrong. Copy it again.");
    }
    return after(holdings.find(hash), acceptKey);
  };

  /** The order is part of the contract: of workspace and key, the workspace speaks first. */
  function acceptKey(found: Standing | undefined): Principal {
    if (found === undefined) throw keyUnknown();
    if (!found.workspaceEnabled) throw workspaceDisabled();
    const { key } = found;
    const { keyId, workspaceId, permissions } = key;
    if (!key.enabled) throw keyDisabled();
    const at = now();
    if (key.expiresAt !== null && key.expiresAt <= at) throw keyExpired();
    lastUsed.record(keyId, at);
    return { kind: "key", keyId, workspaceId, permissions };
  }
}

function bearerToken(authorization: readonly string[]): string {
  const value = authorization[0];
  if (value === undefined) throw credentialMissing();
  if (authorization.length > 1) throw credentialMalformed("The request carries more than one Authorization header.");
  const [, token] = /^Bearer +(\S+)$/i.exec(value) ?? [];
  if (token === undefined) throw credentialMalformed("The Authorization header is not of the form `Bearer <API_KEY>`.");
  return token;
}
