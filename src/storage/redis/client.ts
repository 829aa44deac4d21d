import type { Span } from "@opentelemetry/api";
import { Cluster, Redis, type RedisOptions, ReplyError } from "ioredis";
import { createEpisode } from "../../observe/episode.js";
import type { Log } from "../../observe/log.js";
import { inSpan } from "../../observe/tracing.js";
import { withTimeout } from "../timeout.js";
import { createBreaker } from "./breaker.js";

/** Where Redis is: one server, or some nodes of a cluster. */
export interface RedisAddress {
  readonly urls: readonly string[];
  readonly cluster: boolean;
}

/** A cache that can only help: when Redis is down, slow or odd, reads find nothing and writes do nothing. */
export interface Cache {
  /** Whether it is asked at present. */
  readonly inUse: boolean;
  /** @param span of the call that wants to know */
  get(name: string, span?: Span): Promise<string | undefined>;
  set(name: string, value: string, lifetimeMs: number): Promise<void>;
  close(): void;
}

/** The cache that Redis is, and what else can be asked of it, under the same limits. */
export interface RedisCache extends Cache {
  /** To be used inside of `store` alone. */
  readonly client: Redis | Cluster;
  /**
   * Runs a command that stores something. Undefined if Redis is passed by, refuses it, or does not answer in time.
   *
   * @param operation what traces and the log call it
   * @param span of the call that it is for
   */
  store<T>(operation: string, command: () => Promise<T>, span?: Span): Promise<T | undefined>;
}

/** How long a command may take, all redirections in a cluster included. */
const standardLimitMs = 50;

const clientOptions: RedisOptions = {
  connectTimeout: 500,
  // A command that cannot be sent now fails now. With the defaults it would wait, and a SET that its caller had long
  // given up on would run later, even on a restarted, empty server.
  enableOfflineQueue: false,
  autoResendUnfulfilledCommands: false,
  maxRetriesPerRequest: 0,
  retryStrategy: (attempt) => Math.min(attempt * 20, 500),
};

/** Connects to Redis in the background. Every command answers or gives up within a limit. */
export function connectRedis(address: RedisAddress, log: Log, limitMs = standardLimitMs): RedisCache {
  // A server that owes an answer for so long is connected to anew. Callers have given up by then: see `within`.
  const options = { ...clientOptions, socketTimeout: 10 * limitMs };
  const redis = address.cluster ? connectCluster(address.urls, options) : new Redis(address.urls[0] ?? "", options);
  const outage = createEpisode(log, {
    level: "warn",
    begun: "Redis is out of use; answering from Postgres alone",
    over: "Redis is back",
  });
  // Only if it lasts: a connection that is slow to come about is no outage.
  let doubt: NodeJS.Timeout | undefined;
  let probes = 0;
  const breaker = createBreaker(
    // As a caller would, for a server may greet and yet refuse commands; and under another name each time, for a
    // cluster that has lost one node still has others.
    () => withTimeout(limitMs, redis.get(`latchkey:probe:${probes++}`)),
    (inUse, cause) => {
      clearTimeout(doubt);
      if (inUse) return outage.end();
      // The message only: ioredis errors carry the command's arguments.
      const reason = cause instanceof Error ? cause.message : String(cause);
      doubt = setTimeout(() => outage.begin({ reason }), 3_000).unref();
    },
  );

  redis.on("error", (cause) => breaker.trip(cause));

  /** Under the limits that hold for every command. */
  function limited<T>(operation: string, command: () => Promise<T>, span?: Span): () => Promise<T> {
    if (span === undefined) return () => withTimeout(limitMs, command());
    // The name is not told: that of a key is made from its secret.
    const tell = { "db.system.name": "redis", "db.operation.name": operation };
    return () => inSpan(span, tell, withTimeout(limitMs, command()));
  }

  /** The operations that it refuses: a user of it may lack the right to one of them. */
  const refused = new Set<string>();

  /** A server that is full goes on to answer with what it has, so it is not passed by for what it does not store. */
  function store<T>(operation: string, command: () => Promise<T>, span?: Span): Promise<T | undefined> {
    const noteStored = (answer: T) => {
      if (refused.delete(operation)) log.info({ operation }, "Redis stores entries again");
      return answer;
    };
    const isRefusal = (error: unknown) => {
      if (!(error instanceof ReplyError)) return false;
      const reason = (error as Error).message;
      if (!refused.has(operation))
        log.warn({ operation, reason }, "Redis refuses to store entries; those that it has are used");
      refused.add(operation);
      return true;
    };
    return breaker.run(
      limited(operation, () => command().then(noteStored), span),
      isRefusal,
    );
  }

  return {
    get inUse() {
      return breaker.closed;
    },
    client: redis,
    store,
    get: async (name, span) => (await breaker.run(limited("GET", () => redis.get(name), span))) ?? undefined,
    async set(name, value, lifetimeMs) {
      await store("SET", () => redis.set(name, value, "PX", lifetimeMs));
    },
    close() {
      clearTimeout(doubt);
      breaker.stop();
      redis.removeAllListeners("error").on("error", () => {}); // what happens from now on is our own doing
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
      // Waiting longer than a command may take would help nobody.
      retryDelayOnClusterDown: 10,
      retryDelayOnFailover: 10,
      maxRedirections: 3,
      clusterRetryStrategy: (attempt) => Math.min(attempt * 20, 500),
      // Certificates are made out to names: nodes must not be looked up and then reached by their address.
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

/** Stands in where no Redis is configured: nothing is ever found. */
export const noCache: Cache = {
  inUse: false,
  get: async () => undefined,
  set: async () => {},
  close: () => {},
};
