import { setImmediate, setTimeout as sleep } from "node:timers/promises";
import { Code, ConnectError } from "@connectrpc/connect";
import type { VerifyKeyResponse } from "../../gen/latchkey/v1/keys_service_pb.js";
import { covers } from "../call/permissions.js";
import { toLatchkeyError } from "../client/error.js";
import { createQueryCache, type PermissionQuery as Query } from "../keys/permission-query.js";
import { hashSecret, isWellFormedSecret } from "../keys/secret.js";
import { type ConnectionOptions, openConnection } from "./connection.js";
import { invalid, toVerifyResult, type VerifyResult } from "./result.js";
import type { Session } from "./session.js";

export { isLatchkeyError, LatchkeyError } from "../client/error.js";
export type { InvalidKey, ValidKey, VerifiedIdentity, VerifyResult } from "./result.js";

/** Verifies keys in this process. */
export interface Verifier {
  /**
   * Verifies a secret that was presented to you. Returns at once if the key is cached here, and a promise otherwise. When
   * a revocation has returned, no verification that begins afterwards accepts the key. Rejects with a LatchkeyError, or
   * Connect's ConnectError, if the service is needed and cannot be asked: then the key must not be accepted either.
   */
  verify(secret: string, options?: VerifyOptions): VerifyResult | Promise<VerifyResult>;
  /** Counts since the start. */
  readonly stats: VerifierStats;
  /** Closes the connection. Nothing is left open. Later verifications are rejected. */
  close(): Promise<void>;
}

export interface VerifyOptions {
  /** What the key must be allowed to do in your application, such as `documents.read AND (admin OR documents.write)`. */
  readonly permissions?: string;
}

export interface VerifierOptions extends ConnectionOptions {
  /** The maximum memory of cached keys, in bytes. Default: 64 MiB. */
  readonly maxBytes?: number;
  /** How long a call to the service may take. Default: 5 seconds. */
  readonly timeoutMs?: number;
  /** How long `openVerifier` waits for the service. Default: 10 seconds. */
  readonly openTimeoutMs?: number;
  /** Called with the reason when the stream to the service ends. It is opened again by itself. */
  readonly onDisconnect?: (reason: unknown) => void;
}

export interface VerifierStats {
  /** Verifications that were answered in this process, and by the service. */
  readonly local: number;
  readonly remote: number;
  /** The number of cached keys. */
  readonly cachedKeys: number;
  /** Whether keys can be verified in this process at present. */
  readonly isGranted: boolean;
}

const defaults = { maxBytes: 64 * 2 ** 20, timeoutMs: 5_000, openTimeoutMs: 10_000 };

/** How long the state of a key is awaited on the stream. After that, the service is called. */
const resolveTimeoutMs = 1_000;

/** The lengths that VerifyKey accepts. The service explains others. */
const maxSecretLength = 255;
const maxQueryLength = 1_000;

/**
 * Opens a verifier. Resolves once the service has granted the right to verify locally. Rejects if the service refuses
 * the key, or does not answer in time.
 */
export async function openVerifier(options: VerifierOptions): Promise<Verifier> {
  const { timeoutMs = defaults.timeoutMs, openTimeoutMs = defaults.openTimeoutMs } = options;
  let lastReason: unknown;
  const connection = openConnection(options, options.maxBytes ?? defaults.maxBytes, (reason) => {
    lastReason = reason;
    queueMicrotask(() => options.onDisconnect?.(reason)); // what it throws must not end the connection
  });
  const queryOf = createQueryCache();
  const counts = { local: 0, remote: 0 };
  let isClosed = false;

  /** What the key must be allowed to do. Undefined if the query is invalid: the service explains it. */
  function parse(permissions: string | undefined): Query | undefined {
    if (permissions === undefined) return anyPermissions;
    if (permissions.length > maxQueryLength) return undefined;
    try {
      return queryOf(permissions);
    } catch {
      return undefined;
    }
  }

  /** The result for the key with this hash, if its state may be used at this moment. */
  function decide(session: Session, hash: string, query: Query): VerifyResult | undefined {
    const state = session.find(hash);
    if (state === undefined) return undefined;
    const { result } = state;
    const isRefused = result.valid && !query((permission) => covers(result.permissions, permission));
    const decided = isRefused ? invalid("INSUFFICIENT_PERMISSIONS") : result;
    counts.local += 1;
    session.recordUse(state, decided.code);
    return decided;
  }

  async function verifyLater(
    secret: string,
    hash: string,
    permissions: string | undefined,
    query: Query | undefined,
  ): Promise<VerifyResult> {
    if (isClosed) throw new ConnectError("The verifier is closed.", Code.Canceled);
    if (query !== undefined && secret.length > 0 && secret.length <= maxSecretLength) {
      if (!isWellFormedSecret(secret)) return invalid("NOT_FOUND"); // it cannot exist, so it is not looked up
      const { session } = connection;
      const decided = session?.isGranted() && (await resolve(session, hash, query));
      if (decided) return decided;
    }
    counts.remote += 1;
    return toVerifyResult(await ask(permissions === undefined ? { key: secret } : { key: secret, permissions }));
  }

  /** Requests the state of a key, and decides with it. Undefined if the service must be asked. */
  async function resolve(session: Session, hash: string, query: Query): Promise<VerifyResult | undefined> {
    // An earlier request may have found no key, and the key may have been created since.
    const isEarlier = session.isResolving(hash);
    const giveUp = setTimeout(session.abandon, resolveTimeoutMs, hash);
    const resolved = await session.resolve(hash);
    clearTimeout(giveUp);
    if (resolved === "not found" && !isEarlier) return invalid("NOT_FOUND");
    return decide(session, hash, query);
  }

  /** Calls VerifyKey, and again if the connection has broken: the next one may lead to another replica. */
  async function ask(request: { key: string; permissions?: string }): Promise<VerifyKeyResponse> {
    const { keys } = connection;
    try {
      return await keys.verifyKey(request, { timeoutMs });
    } catch (error) {
      await setImmediate(); // the stream ends with the connection, and then there is another one
      if (isClosed || connection.keys === keys) throw toLatchkeyError(error) ?? error;
      return await connection.keys.verifyKey(request, { timeoutMs }).catch(rethrow);
    }
  }

  const verifier: Verifier = {
    verify(secret, { permissions } = {}) {
      connection.keepGranted();
      const hash = hashSecret(secret);
      const query = parse(permissions);
      const session = isClosed ? undefined : connection.session;
      const decided = session && query && decide(session, hash, query);
      return decided ?? verifyLater(secret, hash, permissions, query);
    },
    get stats() {
      const { session } = connection;
      return { ...counts, cachedKeys: session?.cachedKeys ?? 0, isGranted: session?.isGranted() ?? false };
    },
    async close() {
      isClosed = true;
      await connection.close();
    },
  };

  const timer = new AbortController();
  const timedOut = sleep(openTimeoutMs, undefined, { signal: timer.signal }).then(() => Promise.reject(noAnswer()));
  try {
    await Promise.race([connection.opened, timedOut]);
    return verifier;
  } catch (error) {
    await verifier.close();
    throw error;
  } finally {
    timer.abort();
  }

  function noAnswer(): ConnectError {
    const message = `The service at ${options.address} has not answered within ${openTimeoutMs} ms.`;
    return new ConnectError(message, Code.Unavailable, undefined, undefined, lastReason);
  }
}

const anyPermissions: Query = () => true;

function rethrow(error: unknown): never {
  throw toLatchkeyError(error) ?? error;
}
