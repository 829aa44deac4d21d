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
  function read<T>(name: string, fallback: T, parse: (text: string) => T | undefined, expected: string): T {
    const text = environment[name];
    if (text === undefined || text === "") return fallback;
    const value = parse(text);
    if (value === undefined) problems.push(`${name} must be ${expected}`);
    return value ?? fallback;
  }

  const cluster = read("REDIS_CLUSTER", false, trueOrFalse, "true or false");
  const singleUrlExpected = "one URL such as redis://host:6379, or several URLs if REDIS_CLUSTER is true";
  const redisUrl = url("redis:", "rediss:");
  const urls = cluster
    ? read(
        "REDIS_URL",
        undefined,
        clusterNodes(redisUrl),
        "URLs such as redis://a:6379,redis://b:6379 that differ only in host and port",
      )
    : read("REDIS_URL", undefined, (text) => (redisUrl(text) ? [text] : undefined), singleUrlExpected);
  if (cluster && !environment["REDIS_URL"]) problems.push("REDIS_CLUSTER needs a REDIS_URL");

  const certFile = read("TLS_CERT_FILE", undefined, path, "a file");
  const keyFile = read("TLS_KEY_FILE", undefined, path, "a file");
  const clientCaFile = read("TLS_CLIENT_CA_FILE", undefined, path, "a file");
  const tls = certFile && keyFile ? { certFile, keyFile, clientCaFile } : undefined;
  if (certFile && !keyFile) problems.push("TLS_CERT_FILE needs a TLS_KEY_FILE");
  if (keyFile && !certFile) problems.push("TLS_KEY_FILE needs a TLS_CERT_FILE");
  if (clientCaFile && !certFile && !keyFile) {
    problems.push("TLS_CLIENT_CA_FILE needs a TLS_CERT_FILE and a TLS_KEY_FILE");
  }

  const requestCountExpected = `a number of requests from 1 to ${maxRequests}, or unset for no limit`;
  const requests = read("RATE_LIMIT", undefined, requestCount, requestCountExpected);
  const windowSeconds = read("RATE_LIMIT_SECONDS", 60, seconds, `a number of seconds from 1 to ${maxWindowSeconds}`);
  if (environment["RATE_LIMIT_SECONDS"] && !environment["RATE_LIMIT"]) {
    problems.push("RATE_LIMIT_SECONDS needs a RATE_LIMIT");
  }

  const config: Config = Object.freeze({
    host: read("HOST", "127.0.0.1", plainText, "an address or host name to listen on, such as 127.0.0.1 or 0.0.0.0"),
    httpPort: read("HTTP_PORT", 8080, port, "a port number from 0 to 65535"),
    grpcPort: read("GRPC_PORT", 50051, port, "a port number from 0 to 65535"),
    metricsPort: read("METRICS_PORT", undefined, port, "a port number from 0 to 65535"),
    tls,
    grpcKeepaliveMs: read("GRPC_KEEPALIVE_MS", 60_000, interval, intervalExpected),
    grpcMaxConnectionAgeMs: read("GRPC_MAX_CONNECTION_AGE_MS", undefined, interval, intervalExpected),
    grpcReflection: read("GRPC_REFLECTION", true, onOrOff, "on or off"),
    maxConnections: read("MAX_CONNECTIONS", 10_000, connectionCount, "a number of connections from 10 to 1000000"),
    shutdownDelayMs: read("SHUTDOWN_DELAY_MS", 0, delay, `a number of milliseconds from 0 to ${maxDelayMs}`),
    workers: read("WORKERS", 1, workerCount, `a number of processes from 1 to ${maxWorkers}`),
    databaseUrl: read(
      "DATABASE_URL",
      undefined,
      url("postgres:", "postgresql:"),
      "a URL such as postgres://user:password@host:5432/database",
    ),
    redis: urls && { urls, cluster },
    dataDir: read("DATA_DIR", resolve(".latchkey"), path, "a folder"),
    operatorKey: read("OPERATOR_KEY", undefined, secret, "at least 24 printable ASCII characters without spaces"),
    rateLimit: requests === undefined ? undefined : { requests, windowSeconds },
    quotas: {
      keys: read("QUOTA_KEYS", 1_000_000, quota, quotaExpected),
      identities: read("QUOTA_IDENTITIES", 1_000_000, quota, quotaExpected),
      bytes: read("QUOTA_STORED_MB", 10_240, quota, quotaExpected) * 1024 * 1024,
    },
    auditRetentionDays: read<number | "forever">(
      "AUDIT_RETENTION_DAYS",
      90,
      days,
      `a number of days from 1 to ${maxDays}, or forever`,
    ),
    cacheMb: read("CACHE_MB", 128, mebibytes, "a whole number from 8 to 2048"),
    docsBaseUrl: read("DOCS_BASE_URL", undefined, baseUrl, "a URL such as https://docs.example.com"),
    logLevel: read("LOG_LEVEL", "info", oneOf(logLevels), `one of ${logLevels.join(", ")}`),
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

function plainText(text: string): string | undefined {
  return /^\S+$/.test(text) ? text : undefined;
}

function port(text: string): number | undefined {
  return /^\d{1,5}$/.test(text) && Number(text) <= 65_535 ? Number(text) : undefined;
}

function path(text: string): string {
  return resolve(text);
}

/** From a second to a day. A shorter interval would keep connections busy with pings. */
const intervalExpected = "a number of milliseconds from 1000 to 86400000";

function interval(text: string): number | undefined {
  return /^\d{4,8}$/.test(text) && Number(text) >= 1_000 && Number(text) <= 86_400_000 ? Number(text) : undefined;
}

/** From 10, which is small enough for tests, to a million, which is more than a process can serve. */
function connectionCount(text: string): number | undefined {
  return /^\d{2,7}$/.test(text) && Number(text) >= 10 && Number(text) <= 1_000_000 ? Number(text) : undefined;
}

/** A service manager rarely waits longer for a process to exit. */
const maxDelayMs = 60_000;

function delay(text: string): number | undefined {
  return /^\d{1,5}$/.test(text) && Number(text) <= maxDelayMs ? Number(text) : undefined;
}

/** A larger number is probably a typing error: each worker has its own connections to PostgreSQL. */
const maxWorkers = 64;

function workerCount(text: string): number | undefined {
  return /^[1-9]\d?$/.test(text) && Number(text) <= maxWorkers ? Number(text) : undefined;
}

function mebibytes(text: string): number | undefined {
  return /^\d{1,4}$/.test(text) && Number(text) >= 8 && Number(text) <= 2048 ? Number(text) : undefined;
}

/** A higher limit would have no effect. */
const maxRequests = 1_000_000_000;

function requestCount(text: string): number | undefined {
  return /^[1-9]\d{0,9}$/.test(text) && Number(text) <= maxRequests ? Number(text) : undefined;
}

/** One day. */
const maxWindowSeconds = 86_400;

function seconds(text: string): number | undefined {
  return /^[1-9]\d{0,4}$/.test(text) && Number(text) <= maxWindowSeconds ? Number(text) : undefined;
}

/** A higher quota would have no effect. */
const quotaExpected = "a whole number from 1 to 1000000000";

function quota(text: string): number | undefined {
  return /^[1-9]\d{0,9}$/.test(text) && Number(text) <= 1_000_000_000 ? Number(text) : undefined;
}

/** One hundred years. */
const maxDays = 36_500;

function days(text: string): number | "forever" | undefined {
  if (text === "forever") return text;
  return /^[1-9]\d{0,4}$/.test(text) && Number(text) <= maxDays ? Number(text) : undefined;
}

function secret(text: string): string | undefined {
  return isOperatorKey(text) ? text : undefined;
}

function url(...protocols: string[]) {
  return (text: string) => (isUrl(text) && protocols.includes(new URL(text).protocol) ? text : undefined);
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

function baseUrl(text: string): string | undefined {
  return url("http:", "https:")(text)?.replace(/\/+$/, "");
}

/** One or several URLs that differ only in host and port: all nodes of a cluster use the same protocol and login. */
function clusterNodes(parse: (text: string) => string | undefined) {
  return (text: string) => {
    const parts = text.split(",").map((part) => part.trim());
    if (!parts.every(parse)) return undefined;
    const logins = parts
      .map((part) => new URL(part))
      .map((node) => [node.protocol, node.username, node.password].join());
    return new Set(logins).size === 1 ? parts : undefined;
  };
}

function trueOrFalse(text: string): boolean | undefined {
  return { true: true, false: false }[text];
}

function onOrOff(text: string): boolean | undefined {
  return { on: true, off: false }[text];
}

function oneOf<T extends string>(values: readonly T[]) {
  return (text: string) => values.find((value) => value === text);
}

/** Whether a text can be the operator credential: valid in a header, and too long to guess. */
export function isOperatorKey(text: string): boolean {
  return /^[!-~]{24,}$/.test(text);
}
