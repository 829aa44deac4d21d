import { resolve } from "node:path";
import { UserError } from "./errors.js";
import type { CertificateFiles } from "./net/certificates.js";
import { type LogLevel, logLevels } from "./observe/log.js";
import type { Quotas } from "./quotas/quotas.js";
import type { RateLimit } from "./rate-limit/counter.js";
import type { RedisAddress } from "./storage/redis/client.js";

/** The configuration of this process. */
export interface Config {
  /** The address that both ports listen on. */
  readonly host: string;
  readonly httpPort: number;
  readonly grpcPort: number;
  /** Undefined: metrics are not served. */
  readonly metricsPort: number | undefined;
  /** Undefined: the ports are not encrypted. */
  readonly tls: CertificateFiles | undefined;
  /** The interval of keepalive pings on a gRPC connection. */
  readonly grpcKeepaliveMs: number;
  /** The maximum age of a gRPC connection, after which the server sends GOAWAY; undefined: no maximum. */
  readonly grpcMaxConnectionAgeMs: number | undefined;
  /** Whether the gRPC port offers server reflection. */
  readonly grpcReflection: boolean;
  /** The maximum number of connections of each port, in each process. */
  readonly maxConnections: number;
  /** For how long the ports stay open during shutdown, after the service reports that it is not ready. */
  readonly shutdownDelayMs: number;
  /** The number of processes that serve the ports. */
  readonly workers: number;
  /** Undefined: use an embedded PostgreSQL. */
  readonly databaseUrl: string | undefined;
  /** Undefined: an embedded PostgreSQL comes with an embedded Valkey; a configured PostgreSQL has no Redis cache. */
  readonly redis: RedisAddress | undefined;
  /** The folder of the embedded backends, and of the credentials that the first start creates. */
  readonly dataDir: string;
  /** Undefined: the service generates one and stores it in dataDir. */
  readonly operatorKey: string | undefined;
  /** Undefined: there is no rate limit. */
  readonly rateLimit: RateLimit | undefined;
  readonly quotas: Quotas;
  /** For how many days audit events are kept. Not Infinity: workers receive this as JSON, which cannot encode it. */
  readonly auditRetentionDays: number | "forever";
  /** The size of the key cache in process memory, in MiB. */
  readonly cacheMb: number;
  /** The base of error type URLs. Undefined: the service's own address. */
  readonly docsBaseUrl: string | undefined;
  readonly logLevel: LogLevel;
  /** The search path for programs (PATH). */
  readonly searchPath: string;
}

/** Reads the whole configuration, or throws an error with all problems. Nothing else reads the environment. */
export function readConfig(environment: NodeJS.ProcessEnv): Config {
  const problems: string[] = [];

  /** An empty variable counts as unset, because `VAR= npm start` and most templates mean that. */
  function read<T>(name: string, fallback: T, { parse, expected }: Format<T>): T {
    const text = environment[name];
    if (text === undefined || text === "") return fallback;
    const value = parse(text);
    if (value === undefined) problems.push(`${name} must be ${expected(text)}`);
    return value ?? fallback;
  }

  const cluster = read("REDIS_CLUSTER", false, trueOrFalse);
  const urls = read("REDIS_URL", undefined, cluster ? redisNodes : redisServer);
  if (cluster && !environment["REDIS_URL"]) problems.push("REDIS_CLUSTER needs a REDIS_URL");

  const certFile = read("TLS_CERT_FILE", undefined, path);
  const keyFile = read("TLS_KEY_FILE", undefined, path);
  const clientCaFile = read("TLS_CLIENT_CA_FILE", undefined, path);
  const tls = certFile && keyFile ? { certFile, keyFile, clientCaFile } : undefined;
  if (certFile && !keyFile) problems.push("TLS_CERT_FILE needs a TLS_KEY_FILE");
  if (keyFile && !certFile) problems.push("TLS_KEY_FILE needs a TLS_CERT_FILE");
  if (clientCaFile && !certFile && !keyFile) {
    problems.push("TLS_CLIENT_CA_FILE needs a TLS_CERT_FILE and a TLS_KEY_FILE");
  }

  const requests = read("RATE_LIMIT", undefined, requestCount);
  const windowSeconds = read("RATE_LIMIT_SECONDS", 60, integer(1, 86_400, "number of seconds"));
  if (environment["RATE_LIMIT_SECONDS"] && !environment["RATE_LIMIT"]) {
    problems.push("RATE_LIMIT_SECONDS needs a RATE_LIMIT");
  }

  const config: Config = Object.freeze({
    host: read("HOST", "127.0.0.1", hostName),
    httpPort: read("HTTP_PORT", 8080, port),
    grpcPort: read("GRPC_PORT", 50051, port),
    metricsPort: read("METRICS_PORT", undefined, port),
    tls,
    grpcKeepaliveMs: read("GRPC_KEEPALIVE_MS", 60_000, interval),
    grpcMaxConnectionAgeMs: read("GRPC_MAX_CONNECTION_AGE_MS", undefined, interval),
    grpcReflection: read("GRPC_REFLECTION", true, onOrOff),
    maxConnections: read("MAX_CONNECTIONS", 10_000, connectionCount),
    shutdownDelayMs: read("SHUTDOWN_DELAY_MS", 0, delay),
    workers: read("WORKERS", 1, workerCount),
    databaseUrl: read("DATABASE_URL", undefined, databaseUrl),
    redis: urls && { urls, cluster },
    dataDir: read("DATA_DIR", resolve(".latchkey"), path),
    operatorKey: read("OPERATOR_KEY", undefined, secret),
    rateLimit: requests === undefined ? undefined : { requests, windowSeconds },
    quotas: {
      keys: read("QUOTA_KEYS", 1_000_000, quota),
      identities: read("QUOTA_IDENTITIES", 1_000_000, quota),
      bytes: read("QUOTA_STORED_MB", 10_240, quota) * 1024 * 1024,
    },
    auditRetentionDays: read<number | "forever">("AUDIT_RETENTION_DAYS", 90, days),
    cacheMb: read("CACHE_MB", 128, integer(8, 2048, "number of MiB")),
    docsBaseUrl: read("DOCS_BASE_URL", undefined, baseUrl),
    logLevel: read("LOG_LEVEL", "info", logLevel),
    searchPath: environment["PATH"] ?? "",
  });

  const ports = [config.httpPort, config.grpcPort, config.metricsPort].filter(Boolean);
  if (problems.length === 0 && new Set(ports).size < ports.length) {
    problems.push("HTTP_PORT, GRPC_PORT and METRICS_PORT must differ");
  }
  if (problems.length > 0) throw new UserError(`The configuration is invalid:\n  ${problems.join("\n  ")}`);
  return config;
}

/** How the command line connects to a running service. Flags take precedence over these values. */
export interface ClientConfig {
  readonly address: string | undefined;
  readonly credential: string | undefined;
  /** The CA bundle for the service's certificate; undefined: the CAs that Node trusts. */
  readonly caFile: string | undefined;
  /** The client certificate, for a service that requires one. */
  readonly certFile: string | undefined;
  readonly keyFile: string | undefined;
  readonly dataDir: string;
}

/** Reads the settings of the command line from the environment. */
export function readClientConfig(environment: NodeJS.ProcessEnv): ClientConfig {
  return {
    address: environment["LATCHKEY_ADDRESS"] || undefined,
    credential: environment["LATCHKEY_CREDENTIAL"] || undefined,
    caFile: environment["LATCHKEY_CA_FILE"] || undefined,
    certFile: environment["LATCHKEY_CERT_FILE"] || undefined,
    keyFile: environment["LATCHKEY_KEY_FILE"] || undefined,
    dataDir: resolve(environment["DATA_DIR"] || ".latchkey"),
  };
}

/** The format of a variable. */
interface Format<T> {
  /** Undefined: the text is invalid. */
  parse(text: string): T | undefined;
  /** Describes the valid values. Repeats the text only where it cannot contain a secret. */
  expected(text: string): string;
}

/**
 * A whole number in decimal digits.
 *
 * @param unit what it counts, such as "number of seconds"
 * @param alternative to a number, such as "or forever"
 */
function integer(min: number, max: number, unit: string, alternative = ""): Format<number> {
  return {
    parse(text) {
      const value = /^\d{1,15}$/.test(text) ? Number(text) : Number.NaN;
      return value >= min && value <= max ? value : undefined;
    },
    expected(text) {
      const range = [`a ${unit} from ${min} to ${max}`, alternative].filter(Boolean).join(", ");
      return `${range}; it is ${JSON.stringify(text.length > 20 ? `${text.slice(0, 20)}…` : text)}`;
    },
  };
}

const port = integer(0, 65_535, "port number");

/** From a second to a day. A shorter interval would keep connections busy with pings. */
const interval = integer(1_000, 86_400_000, "number of milliseconds");

/** From 10, which is small enough for tests, to a million, which is more than a process can serve. */
const connectionCount = integer(10, 1_000_000, "number of connections");

/** A service manager rarely waits longer than a minute for a process to exit. */
const delay = integer(0, 60_000, "number of milliseconds");

/** A larger number is probably a typing error: each worker has its own connections to PostgreSQL. */
const workerCount = integer(1, 64, "number of processes");

/** A higher limit would have no effect. */
const requestCount = integer(1, 1_000_000_000, "number of requests", "or unset for no limit");

/** A higher quota would have no effect. */
const quota = integer(1, 1_000_000_000, "whole number");

/** At most a hundred years. */
const numberOfDays = integer(1, 36_500, "number of days", "or forever");

const days: Format<number | "forever"> = {
  ...numberOfDays,
  parse: (text) => (text === "forever" ? text : numberOfDays.parse(text)),
};

const hostName: Format<string> = {
  parse: (text) => (/^\S+$/.test(text) ? text : undefined),
  expected: () => "an address or host name to listen on, such as 127.0.0.1 or 0.0.0.0",
};

const path: Format<string> = { parse: (text) => resolve(text), expected: () => "a file or folder" };

const secret: Format<string> = {
  parse: (text) => (isOperatorKey(text) ? text : undefined),
  expected: () => "at least 24 printable ASCII characters without spaces",
};

/** A URL with one of these protocols. Its description does not repeat it, because it may contain a password. */
function url(protocols: readonly string[], example: string): Format<string> {
  return {
    parse: (text) => (isUrl(text) && protocols.includes(new URL(text).protocol) ? text : undefined),
    expected: () => example,
  };
}

/** Clients parse the URL and decode its parts, so all parts must be decodable. */
function isUrl(text: string): boolean {
  try {
    const { username, password, hostname, pathname } = new URL(text);
    decodeURIComponent(username + password + hostname + pathname);
    return true;
  } catch {
    return false;
  }
}

const databaseUrl = url(["postgres:", "postgresql:"], "a URL such as postgres://user:password@host:5432/database");
const redisUrl = url(
  ["redis:", "rediss:"],
  "one URL such as redis://host:6379, or several URLs if REDIS_CLUSTER is true",
);
const httpUrl = url(["http:", "https:"], "a URL such as https://docs.example.com");

const baseUrl: Format<string> = { ...httpUrl, parse: (text) => httpUrl.parse(text)?.replace(/\/+$/, "") };

const redisServer: Format<readonly string[]> = {
  ...redisUrl,
  parse: (text) => (redisUrl.parse(text) ? [text] : undefined),
};

/** One or several URLs that differ only in host and port: all nodes of a cluster use the same protocol and login. */
const redisNodes: Format<readonly string[]> = {
  parse(text) {
    const parts = text.split(",").map((part) => part.trim());
    if (!parts.every(redisUrl.parse)) return undefined;
    const logins = parts
      .map((part) => new URL(part))
      .map((node) => [node.protocol, node.username, node.password].join());
    return new Set(logins).size === 1 ? parts : undefined;
  },
  expected: () => "URLs such as redis://a:6379,redis://b:6379 that differ only in host and port",
};

function either(on: string, off: string): Format<boolean> {
  const values = new Map([
    [on, true],
    [off, false],
  ]);
  return { parse: (text) => values.get(text), expected: () => `${on} or ${off}` };
}

const logLevel: Format<LogLevel> = {
  parse: (text) => logLevels.find((level) => level === text),
  expected: () => `one of ${logLevels.join(", ")}`,
};
const trueOrFalse = either("true", "false");
const onOrOff = either("on", "off");

/** Whether a text can be the operator credential: valid in a header, and too long to guess. */
export function isOperatorKey(text: string): boolean {
  return /^[!-~]{24,}$/.test(text);
}
