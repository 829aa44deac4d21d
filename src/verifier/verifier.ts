import { setImmediate, setTimeout as sleep } from "node:timers/promises";
import type { MessageInitShape } from "@bufbuild/protobuf";
import { Code, ConnectError } from "@connectrpc/connect";
import type { VerifyKeyRequestSchema, VerifyKeyResponse } from "../../gen/latchkey/v1/keys_service_pb.js";
import { covers } from "../call/permissions.js";
import { checkInteger, maxTimerMs } from "../client/integer.js";
import { toLatchkeyError } from "../client/protobuf-error.js";
import { createQueryCache, type PermissionQuery as Query } from "../keys/permission-query.js";
import { isWellFormedSecret } from "../keys/secret.js";
import { type ConnectionOptions, openConnection, requestState } from "./connection.js";
import { invalid, toVerifyResult, type VerifyResult, withoutPermission } from "./result.js";
import type { Session } from "./session.js";

export { isLatchkeyError, LatchkeyError } from "../client/error.js";
export type {
  InvalidKey,
  RateLimitState,
  ValidKey,
  VerifiedIdentity,
  VerifiedKey,
  VerifyResult,
} from "./result.js";

/** Verifies keys in this process. */
export interface Verifier {
  /**
   * Verifies a secret that was presented to you. Returns at once if the key is cached here, and a promise otherwise. When
   * a revocation has returned, no verification that begins afterwards accepts the key. Rejects with a LatchkeyError, or
   * Connect's ConnectError, if the service is needed and cannot be asked: then the key must not be accepted either.
   *
   * The service is asked for each verification of a key with credits, or with rate limits that apply automatically: only
   * the service can count them. Each is a call of its own. Verifications that share one call would be counted once, and
   * could get a result from before a change that they must know.
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
  /**
   * Rate limits that the verification must keep to, besides those that apply automatically. With some, the service is
   * always asked.
   */
  readonly ratelimits?: readonly RateLimitCheck[];
  /** The credits that the verification spends, if the key has credits. Default: 1. If set, the service is always asked. */
  readonly credits?: { readonly cost: number };
  /** Tags under which the verification is counted, if the service is asked. Otherwise it is counted without them. */
  readonly tags?: readonly string[];
}

/** A rate limit that a verification must keep to. */
export interface RateLimitCheck {
  /** The name of a rate limit of the key or its identity. With `limit` and `duration`, any name. */
  readonly name: string;
  /** How much the verification uses. Default: 1. */
  readonly cost?: number;
  /** Replaces the configured limit. */
  readonly limit?: number;
  /** Replaces the configured duration, in milliseconds. */
  readonly duration?: number;
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

/** The longest timeout that gRPC can transmit. */
const maxCallTimeoutMs = 99_999_999;

/** A longer text is no secret of any key. */
const maxSecretLength = 512;

/** The maximum length that VerifyKey accepts. The service explains a longer query. */
const maxQueryLength = 1_000;

/**
 * Opens a verifier. Resolves once the service has granted the right to verify locally. Rejects if the service refuses
 * the key, or does not answer in time.
 */
export async function openVerifier(options: VerifierOptions): Promise<Verifier> {
  const {
    maxBytes = defaults.maxBytes,
    timeoutMs = defaults.timeoutMs,
    openTimeoutMs = defaults.openTimeoutMs,
  } = options;
  checkInteger("maxBytes", maxBytes, 1, Number.MAX_SAFE_INTEGER);
  checkInteger("timeoutMs", timeoutMs, 0, maxCallTimeoutMs);
  checkInteger("openTimeoutMs", openTimeoutMs, 0, maxTimerMs);
  let lastReason: unknown;
  const connection = openConnection(options, maxBytes, (reason) => {
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

  /**
   * The result for a secret, if the state of its key may be used at this moment. "remote" if the state does not refuse the
   * key, and only the service can accept it.
   */
  function decide(session: Session, secret: string, query: Query): VerifyResult | "remote" | undefined {
    const state = session.find(session.hashOf(secret));
    if (state === undefined) return undefined;
    const { result } = state;
    const isRefused = result.valid && !query((permission) => covers(result.permissions, permission));
    if (result.valid && !isRefused && state.verifyRemotely) return "remote";
    const decided = isRefused ? withoutPermission(result) : result;
    counts.local += 1;
    session.recordUse(secret, state, decided.code);
    return decided;
  }

  /** @param query undefined: only the service can decide */
  async function verifyLater(secret: string, options: VerifyOptions, query: Query | undefined): Promise<VerifyResult> {
    if (isClosed) throw new ConnectError("The verifier is closed.", Code.Canceled);
    if (query !== undefined && secret !== "") {
      const { session } = connection;
      if (!mayExist(session, secret)) return invalid("NOT_FOUND");
      const decided = session?.isGranted() && (await resolve(session, secret, query));
      if (decided && decided !== "remote") return decided;
    }
    counts.remote += 1;
    return toVerifyResult(await ask(toRequest(secret, options)));
  }

  /** Requests the state of a key, and decides with it. Undefined if the service must be asked. */
  async function resolve(session: Session, secret: string, query: Query): Promise<VerifyResult | "remote" | undefined> {
    const hash = session.hashOf(secret);
    // An earlier request may have found no key, and the key may have been created since.
    const isEarlier = session.isResolving(hash);
    const resolved = await requestState(session, hash);
    if (resolved === "not found" && !isEarlier) return invalid("NOT_FOUND");
    return decide(session, secret, query);
  }

  /**
   * Calls VerifyKey, and again if the connection has broken: the next one may lead to another replica. Both calls may then
   * count against limits, as they would if the client of the API repeated its request.
   */
  async function ask(request: VerifyKeyInit): Promise<VerifyKeyResponse> {
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
    verify(secret, options = {}) {
      connection.keepGranted();
      const session = isClosed ? undefined : connection.session;
      const query = isCounted(options) ? undefined : parse(options.permissions);
      const decided = session && query && decide(session, secret, query);
      if (decided === "remote") return verifyLater(secret, options, undefined);
      return decided ?? verifyLater(secret, options, query);
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

/** Whether a secret can belong to a key. A malformed one can only if it was imported. It is looked up only then. */
function mayExist(session: Session | undefined, secret: string): boolean {
  if (secret.length > maxSecretLength) return false;
  return isWellFormedSecret(secret) || !session?.isGranted() || session.mayHaveImports;
}

/** Whether a verification counts against limits that only the service knows. */
function isCounted({ ratelimits = [], credits }: VerifyOptions): boolean {
  return ratelimits.length > 0 || credits !== undefined;
}

type VerifyKeyInit = MessageInitShape<typeof VerifyKeyRequestSchema>;

function toRequest(key: string, { permissions, ratelimits = [], credits, tags = [] }: VerifyOptions): VerifyKeyInit {
  return {
    key,
    ...(permissions !== undefined && { permissions }),
    ...(credits !== undefined && { credits: { cost: BigInt(credits.cost) } }),
    ratelimits: ratelimits.map(toRateLimitCheck),
    tags: [...tags],
  };
}

function toRateLimitCheck({ name, cost, limit, duration }: RateLimitCheck) {
  return {
    name,
    ...(cost !== undefined && { cost: BigInt(cost) }),
    ...(limit !== undefined && { limit: BigInt(limit) }),
    ...(duration !== undefined && { duration: BigInt(duration) }),
  };
}

function rethrow(error: unknown): never {
  throw toLatchkeyError(error) ?? error;
}
