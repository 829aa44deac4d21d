import { timingSafeEqual } from "node:crypto";
import type { Call } from "../call.js";
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
export type Authenticate = (call: Call, authorization: readonly string[]) => Soon<Principal>;

/** What was brought to prove who is calling. */
interface Credential {
  readonly header: string;
  readonly token: string;
  readonly hash: string;
  readonly isOperator: boolean;
}

export function createAuthenticate(
  operatorKey: string,
  holdings: Holdings,
  lastUsed: Pick<LastUsed, "record">,
  now: () => Date,
): Authenticate {
  const operator: Operator = { kind: "operator" };
  const operatorHash = Buffer.from(hashSecret(operatorKey));

  // Most connections bring the same credential with every call. What was made of it lives as long as they do, and no
  // longer; nothing is remembered of whether it was good.
  const lastBrought = new WeakMap<object, Credential>();

  return (call, authorization) => {
    const { token, hash, isOperator } = credentialOf(onlyHeader(authorization), call.connection);
    if (isOperator) return after(holdings.ready(), () => operator);
    const held = holdings.held(hash);
    if (held !== undefined) return acceptKey(held);
    // A text that cannot be a secret of ours is not looked up.
    if (!isWellFormedSecret(token)) {
      throw credentialMalformed("The credential is not an API key: its form or its checksum is wrong. Copy it again.");
    }
    return after(holdings.find(hash, call), acceptKey);
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

function onlyHeader(authorization: readonly string[]): string {
  const header = authorization[0];
  if (header === undefined) throw credentialMissing();
  if (authorization.length > 1) throw credentialMalformed("The request carries more than one Authorization header.");
  return header;
}

/** The credential in an Authorization header. */
export function bearerToken(header: string): string {
  const [, token] = /^Bearer +(\S+)$/i.exec(header) ?? [];
  if (token === undefined) throw credentialMalformed("The Authorization header is not of the form `Bearer <API_KEY>`.");
  return token;
}
