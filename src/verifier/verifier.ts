import { Code, ConnectError } from "@connectrpc/connect";
import { covers } from "../call/permissions.js";
import { toLatchkeyError } from "../client/error.js";
import { createQueryCache } from "../keys/permission-query.js";
import { hashSecret, isWellFormedSecret } from "../keys/secret.js";
import { type ConnectionOptions, openConnection } from "./connection.js";
import type { KeyState } from "./key-states.js";
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

const maxSecretLength = 255;

/**
 * Opens a verifier. Resolves once the service has granted the right to verify locally. Rejects if the service refuses
 * the key, or does not answer in time.
 */
export async function openVerifier(options: VerifierOptions): Promise<Verifier> {
  const { timeoutMs = defaults.timeoutMs, openTimeoutMs = defaults.openTimeoutMs } = options;
  let lastReason: unknown;
  const connection = openConnection(options, options.maxBytes ?? defaults.maxBytes, (reason) => {
    lastReason = reason;
    options.onDisconnect?.(reason);
  });
  const queryOf = createQueryCache();
  const counts = { local: 0, remote: 0 };
  let isClosed = false;

  /** The result for a key in this state. Undefined if the permission query is invalid: the service explains it. */
  function decide(session: Session, state: KeyState, permissions: string | undefined): VerifyResult | undefined {
    const { result } = state;
    const decided = result.valid && permissions !== undefined ? query(result.permissions, permissions, result) : result;
    if (decided === undefined) return undefined;
    counts.local += 1;
    session.recordUse(state, decided.code);
    return decided;
  }

  function query(granted: readonly string[], text: string, result: VerifyResult): VerifyResult | undefined {
    try {
      return queryOf(text)((permission) => covers(granted, permission)) ? result : invalid("INSUFFICIENT_PERMISSIONS");
    } catch {
      return undefined;
    }
  }

  async function verifyLater(secret: string, hash: string, permissions: string | undefined): Promise<VerifyResult> {
    if (isClosed) throw new ConnectError("The verifier is closed.", Code.Canceled);
    // A text that cannot be a secret is not looked up. The service explains one that is too long.
    if (!isWellFormedSecret(secret) && secret.length <= maxSecretLength) return invalid("NOT_FOUND");
    const { session } = connection;
    if (session?.isGranted()) {
      // An earlier request may have found no key, and the key may have been created since.
      const isEarlier = session.isResolving(hash);
      const giveUp = setTimeout(session.abandon, resolveTimeoutMs, hash);
      const resolved = await session.resolve(hash);
      clearTimeout(giveUp);
      if (resolved === "not found" && !isEarlier) return invalid("NOT_FOUND");
      // Looked up now, because the right to use the state may have ended meanwhile.
      const state = session.find(hash);
      const decided = state && decide(session, state, permissions);
      if (decided !== undefined) return decided;
    }
    counts.remote += 1;
    const request = permissions === undefined ? { key: secret } : { key: secret, permissions };
    return toVerifyResult(await connection.keys.verifyKey(request, { timeoutMs }).catch(rethrow));
  }

  const verifier: Verifier = {
    verify(secret, { permissions } = {}) {
      connection.keepGranted();
      const hash = hashSecret(secret);
      const { session } = connection;
      const state = session?.find(hash);
      const decided = session && state && decide(session, state, permissions);
      return decided ?? verifyLater(secret, hash, permissions);
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

  const isOpen = await Promise.race([
    connection.opened.then(() => true),
    new Promise<false>((resolve) => setTimeout(resolve, openTimeoutMs, false).unref()),
  ]).catch(async (error) => {
    await verifier.close();
    throw error;
  });
  if (isOpen) return verifier;
  await verifier.close();
  throw new ConnectError(
    `The service at ${options.address} has not answered within ${openTimeoutMs} ms.`,
    Code.Unavailable,
    undefined,
    undefined,
    lastReason,
  );
}

function rethrow(error: unknown): never {
  throw toLatchkeyError(error) ?? error;
}
