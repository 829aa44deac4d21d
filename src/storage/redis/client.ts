import type { Span } from "@opentelemetry/api";
import { Cluster, Redis, type RedisOptions, ReplyError } from "ioredis";
import type { Log } from "../../observe/log.js";
import { createOutageLog, type OutageLog } from "../../observe/outage-log.js";
import { inSpan } from "../../observe/tracing.js";
import { withTimeout } from "../timeout.js";
import { createBreaker } from "./breaker.js";
import { createEvictionCheck } from "./eviction.js";

/** One Redis server, or some nodes of a cluster. */
export interface RedisAddress {
  readonly urls: readonly string[];
  readonly cluster: boolean;
}

/** A best-effort cache. While Redis is down, slow or faulty, reads find nothing and writes do nothing. */
export interface Cache {
  /** False while Redis is bypassed. */
  readonly inUse: boolean;
  /** @param span of the call that reads */
  get(name: string, span?: Span): Promise<string | undefined>;
  set(name: string, value: string, lifetimeMs: number): Promise<void>;
  close(): void;
}

/** The cache in Redis, and other commands under the same limits. */
export interface RedisCache extends Cache {
  readonly isCluster: boolean;
  /** To be used inside `store` only. */
  readonly client: Redis | Cluster;
  /**
   * Runs a command that writes. Undefined if Redis is bypassed, refuses the command, or does not answer in time.
   *
   * @param operation its name in traces and the log
   * @param span of the call that needs it
   */
  store<T>(operation: string, command: () => Promise<T>, span?: Span): Promise<T | undefined>;
}

/**
 * How long a command may take, all redirections in a cluster included. The commandTimeout of ioredis limits one connection,
 * and would reject responses that arrived while this process was paused.
 */
const defaultTimeoutMs = 50;

const clientOptions: RedisOptions = {
  connectTimeout: 500,
  // A command that cannot be sent fails at once. With the defaults it would wait, and an abandoned SET would run later,
  // even on a restarted, empty server.
  enableOfflineQueue: false,
  autoResendUnfulfilledCommands: false,
  maxRetriesPerRequest: 0,
  retryStrategy: (attempt) => Math.min(attempt * 20, 500),
};

/** How soon a connection that leads to a read-only server may be replaced again. */
const minReplacementIntervalMs = 1_000;

/**
 * Whether to connect again after an error: a server that was the primary before a failover is read-only, and its name may
 * lead to the primary by now. Redis 6 reports such an error of a script in another form.
 */
function leavesReadOnly(): (error: Error) => boolean {
  let leftAt = Number.NEGATIVE_INFINITY;
  return ({ message }) => {
    const now = performance.now();
    if (!/(^|-)READONLY /.test(message) || now < leftAt + minReplacementIntervalMs) return false;
    leftAt = now;
    return true;
  };
}

/** Connects to Redis in the background. Every command ends within a timeout. */
export function connectRedis(address: RedisAddress, log: Log, timeoutMs = defaultTimeoutMs): RedisCache {
  // Reconnect if the server does not answer for this long. Callers have timed out by then.
  const options = { ...clientOptions, socketTimeout: 10 * timeoutMs, reconnectOnError: leavesReadOnly() };
  const redis = address.cluster ? connectCluster(address.urls, options) : new Redis(address.urls[0] ?? "", options);
  const outage = createOutageLog(log, "warn");
  const checkEviction = createEvictionCheck(redis, log);
  // Logged only if it lasts: a connection that is slow to open is no outage.
  let pendingLog: NodeJS.Timeout | undefined;
  let probes = 0;
  const breaker = createBreaker(
    // A command of a caller, because a server may accept connections and refuse commands. Another key each time, because a
    // cluster that has lost one node still has others.
    () => withTimeout(timeoutMs, redis.get(`latchkey:probe:${probes++}`)),
    (inUse, cause) => {
      clearTimeout(pendingLog);
      if (inUse) {
        void checkEviction(); // it may be another server now
        outage.recovered("Redis is available again");
        return;
      }
      // The message only: errors of ioredis contain the arguments of the command.
      const reason = cause instanceof Error ? cause.message : String(cause);
      pendingLog = setTimeout(() => {
        outage.failed("Redis is unavailable; lookups use PostgreSQL alone", { reason });
      }, 3_000).unref();
    },
  );

  redis.on("error", (cause) => breaker.trip(cause));

  /** Adds the timeout and the span. */
  function limited<T>(operation: string, command: () => Promise<T>, span?: Span): () => Promise<T> {
    if (span === undefined) return () => withTimeout(timeoutMs, command());
    // Without the cache key: that of an API key is derived from its secret.
    const attributes = { "db.system.name": "redis", "db.operation.name": operation };
    return () => inSpan(span, attributes, withTimeout(timeoutMs, command()));
  }

  /** The refusals of each operation: the Redis user may lack the permission for one of them. */
  const refusals = new Map<string, OutageLog>();

  /** A full server still answers reads, so refused writes do not open the circuit. */
  function store<T>(operation: string, command: () => Promise<T>, span?: Span): Promise<T | undefined> {
    const recordSuccess = (response: T) => {
      refusals.get(operation)?.recovered("Redis accepts writes again", { operation });
      return response;
    };
    const isRefusal = (error: unknown) => {
      if (!(error instanceof ReplyError)) return false;
      const reason = (error as Error).message;
      const outage = refusals.get(operation) ?? createOutageLog(log, "warn");
      refusals.set(operation, outage);
      outage.failed("Redis refuses writes; existing entries are still read", { operation, reason });
      return true;
    };
    return breaker.run(
      limited(operation, () => command().then(recordSuccess), span),
      isRefusal,
    );
  }

  return {
    get inUse() {
      return breaker.closed;
    },
    isCluster: address.cluster,
    client: redis,
    store,
    get: async (name, span) => (await breaker.run(limited("GET", () => redis.get(name), span))) ?? undefined,
    async set(name, value, lifetimeMs) {
      await store("SET", () => redis.set(name, value, "PX", lifetimeMs));
    },
    close() {
      clearTimeout(pendingLog);
      breaker.stop();
      redis.removeAllListeners("error").on("error", () => {}); // errors from here on are caused by the disconnect
      redis.disconnect();
    },
  };
}

function connectCluster(urls: readonly string[], options: RedisOptions): Cluster {
  const nodes = urls.map((url) => new URL(url));
  const [first] = nodes;
  const secure = first?.protocol === "rediss:";
  return new Cluster(
    nodes.map(({ hostname, port }) => ({ host: hostname.replace(/^\[|\]$/g, ""), port: Number(port || 6379) })),
    {
      enableOfflineQueue: false,
      slotsRefreshTimeout: 500,
      // A longer delay would exceed the timeout of a command.
      retryDelayOnClusterDown: 10,
      retryDelayOnFailover: 10,
      maxRedirections: 3,
      clusterRetryStrategy: (attempt) => Math.min(attempt * 20, 500),
      // Certificates name hosts: nodes must be reached by name, not by a resolved address.
      ...(secure && { dnsLookup: (name, found) => found(null, name) }),
      redisOptions: {
        ...options,
        username: decodeURIComponent(first?.username ?? "") || undefined,
        password: decodeURIComponent(first?.password ?? "") || undefined,
        ...(secure && { tls: {} }),
      },
    },
  );
}

/** The cache without Redis: nothing is ever found. */
export const noCache: Cache = {
  inUse: false,
  get: async () => undefined,
  set: async () => {},
  close: () => {},
};
