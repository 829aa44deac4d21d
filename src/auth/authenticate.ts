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
import type { Holdings } from "./holdings.js";
import type { Principal } from "./principal.js";

/** Turns the Authorization headers of a call into the one who is calling, or refuses. Stands behind every door. */
export type Authenticate = (authorization: readonly string[]) => Promise<Principal>;

export function createAuthenticate(
  operatorKey: string,
  holdings: Holdings,
  lastUsed: Pick<LastUsed, "record">,
  now: () => Date,
): Authenticate {
  const operatorHash = hashSecret(operatorKey);

  return async (authorization) => {
    const token = bearerToken(authorization);
    const hash = hashSecret(token);
    if (timingSafeEqual(hash, operatorHash)) {
      await holdings.ready();
      return { kind: "operator" };
    }
    if (!isWellFormedSecret(token)) {
      throw credentialMalformed("The credential is not an API key: its form or its checksum is wrong. Copy it again.");
    }

    // The order is part of the contract: of workspace and key, the workspace speaks first.
    const found = await holdings.find(hash);
    if (found === undefined) throw keyUnknown();
    if (!found.workspaceEnabled) throw workspaceDisabled();
    const { key } = found;
    const { keyId, workspaceId, permissions } = key;
    if (!key.enabled) throw keyDisabled();
    const at = now();
    if (key.expiresAt !== null && key.expiresAt <= at) throw keyExpired();
    lastUsed.record(keyId, at);
    return { kind: "key", keyId, workspaceId, permissions };
  };
}

function bearerToken(authorization: readonly string[]): string {
  const [value, another] = authorization;
  if (value === undefined) throw credentialMissing();
  if (another !== undefined) throw credentialMalformed("The request carries more than one Authorization header.");
  const [, token] = /^Bearer +(\S+)$/i.exec(value) ?? [];
  if (token === undefined) throw credentialMalformed("The Authorization header is not of the form `Bearer <API_KEY>`.");
  return token;
}
