import { resolve } from "node:path";
import { UserError } from "./errors.js";
import type { CertificateFiles } from "./net/certificates.js";
import { type LogLevel, logLevels } from "./observe/log.js";
import type { Quotas } from "./quotas/quotas.js";
import type { RateLimit } from "./rate-limit/counter.js";
import type { RedisAddress } from "./storage/redis/client.js";

/** How this process is to run. */
export interface Config {
  /** The address that both ports listen on. */
  readonly host: string;
  readonly httpPort: number;
  readonly grpcPort: number;
  /** Undefined: metrics are not served. */
  readonly metricsPort: number | undefined;
  /** Undefined: the ports are not encrypted. */
  readonly tls: CertificateFiles | undefined;
  /** After how long a gRPC connection is asked whether its client is still there. */
  readonly grpcKeepaliveMs: number;
  /** After how long a gRPC client is asked to connect anew; undefined: never. */
  readonly grpcMaxConnectionAgeMs: number | undefined;
  /** Whether the gRPC port offers server reflection. */
  readonly grpcReflection: boolean;
  /** How many connections each port takes, in each process. */
  readonly maxConnections: number;
  /** For how long, at a stop, the ports stay open once it is told that the service is not ready any more. */
  readonly shutdownDelayMs: number;
  /** How many processes serve the ports. */
  readonly workers: number;
  /** Undefined: PostgreSQL is embedded. */
  readonly databaseUrl: string | undefined;
  /** Undefined: Valkey is embedded beside an embedded PostgreSQL; beside a configured one there is no cache. */
  readonly redis: RedisAddress | undefined;
  /** Where the embedded backends and the credentials made at the first start live. */
  readonly dataDir: string;
  /** Undefined: one is made and kept in dataDir. */
  readonly operatorKey: string | undefined;
  /** Undefined: a workspace may make as many requests as it likes. */
  readonly rateLimit: RateLimit | undefined;
  readonly quotas: Quotas;
  /** For how many days audit events are kept. Not a number that JSON does not know: workers are told by JSON. */
  readonly auditRetentionDays: number | "forever";
  /** How much of keys and workspaces is held in this process, in MiB. */
  readonly cacheMb: number;
  /** What error URLs begin with. Undefined: the service's own address. */
  readonly docsBaseUrl: string | undefined;
  readonly logLevel: LogLevel;
  /** Where programs are looked for (PATH). */
  readonly searchPath: string;
}

/** Reads the whole configuration, or says all that is wrong with it. Nothing else reads the environment. */
export function readConfig(environment: NodeJS.ProcessEnv): Config {
  const problems: string[] = [];

  /** An empty variable counts as unset: that is what `VAR= npm start` and most templates mean. */
  function read<T>(name: string, fallback: T, parse: (text: string) => T | undefined, expected: string): T {
    const text = environment[name];
    if (text === undefined || text === "") return fallback;
    const value = parse(text);
    if (value === undefined) problems.push(`${name} must be ${expected}`);
    return value ?? fallback;
  }

  const cluster = read("REDIS_CLUSTER", false, yesOrNo, "true or false");
  const oneRedisUrl = "one URL such as redis://host:6379; several, only if REDIS_CLUSTER is true";
  const redisUrl = url("redis:", "rediss:");
  const urls = cluster
    ? read(
        "REDIS_URL",
        undefined,
        nodes(redisUrl),
        "URLs such as redis://a:6379,redis://b:6379, alike but for the host",
      )
    : read("REDIS_URL", undefined, (text) => (redisUrl(text) ? [text] : undefined), oneRedisUrl);
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

  const requestsExpected = `a number of requests from 1 to ${mostRequests}; unset, there is no limit`;
  const requests = read("RATE_LIMIT", undefined, requestCount, requestsExpected);
  const windowSeconds = read("RATE_LIMIT_SECONDS", 60, seconds, `a number of seconds from 1 to ${longestWindow}`);
  if (environment["RATE_LIMIT_SECONDS"] && !environment["RATE_LIMIT"]) {
    problems.push("RATE_LIMIT_SECONDS needs a RATE_LIMIT");
  }

  const config: Config = Object.freeze({
    host: read("HOST", "127.0.0.1", plainText, "an address or host name to listen on, such as 127.0.0.1 or 0.0.0.0"),
    httpPort: read("HTTP_PORT", 8080, port, "a port number from 0 to 65535"),
    grpcPort: read("GRPC_PORT", 50051, port, "a port number from 0 to 65535"),
    metricsPort: read("METRICS_PORT", undefined, port, "a port number from 0 to 65535"),
    tls,
    grpcKeepaliveMs: read("GRPC_KEEPALIVE_MS", 60_000, patience, patienceExpected),
    grpcMaxConnectionAgeMs: read("GRPC_MAX_CONNECTION_AGE_MS", undefined, patience, patienceExpected),
    grpcReflection: read("GRPC_REFLECTION", true, onOrOff, "on or off"),
    maxConnections: read("MAX_CONNECTIONS", 10_000, connectionCount, "a number of connections from 10 to 1000000"),
    shutdownDelayMs: read("SHUTDOWN_DELAY_MS", 0, delay, `a number of milliseconds from 0 to ${longestDelayMs}`),
    workers: read("WORKERS", 1, workerCount, `a number of processes from 1 to ${mostWorkers}`),
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
      `a number of days from 1 to ${mostDays}, or forever`,
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
  if (problems.length > 0) throw new UserError(`The configuration cannot be used:\n  ${problems.join("\n  ")}`);
  return config;
}

/** How the command line reaches a running service; flags speak before these. */
export interface ClientConfig {
  readonly address: string | undefined;
  readonly credential: string | undefined;
  /** Who is trusted to sign the service's certificate; undefined: whom Node trusts. */
  readonly caFile: string | undefined;
  /** The certificate to show to a service that wants one. */
  readonly certFile: string | undefined;
  readonly keyFile: string | undefined;
  readonly dataDir: string;
}

/** Reads what the command line takes from the environment. */
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

/** From a second, below which connections are kept busy by being asked, to a day. */
const patienceExpected = "a number of milliseconds from 1000 to 86400000";

function patience(text: string): number | undefined {
  return /^\d{4,8}$/.test(text) && Number(text) >= 1_000 && Number(text) <= 86_400_000 ? Number(text) : undefined;
}

/** From few enough for a test to a million, which no process could serve anyway. */
function connectionCount(text: string): number | undefined {
  return /^\d{2,7}$/.test(text) && Number(text) >= 10 && Number(text) <= 1_000_000 ? Number(text) : undefined;
}

/** Who tells a process to stop rarely waits longer for its end. */
const longestDelayMs = 60_000;

function delay(text: string): number | undefined {
  return /^\d{1,5}$/.test(text) && Number(text) <= longestDelayMs ? Number(text) : undefined;
}

/** More than this is a slip of the pen: each has connections to PostgreSQL of its own. */
const mostWorkers = 64;

function workerCount(text: string): number | undefined {
  return /^[1-9]\d?$/.test(text) && Number(text) <= mostWorkers ? Number(text) : undefined;
}

function mebibytes(text: string): number | undefined {
  return /^\d{1,4}$/.test(text) && Number(text) >= 8 && Number(text) <= 2048 ? Number(text) : undefined;
}

/** Above this, a limit is none. */
const mostRequests = 1_000_000_000;

function requestCount(text: string): number | undefined {
  return /^[1-9]\d{0,9}$/.test(text) && Number(text) <= mostRequests ? Number(text) : undefined;
}

/** A day. */
const longestWindow = 86_400;

function seconds(text: string): number | undefined {
  return /^[1-9]\d{0,4}$/.test(text) && Number(text) <= longestWindow ? Number(text) : undefined;
}

/** Above this, a quota is none. */
const quotaExpected = "a whole number from 1 to 1000000000";

function quota(text: string): number | undefined {
  return /^[1-9]\d{0,9}$/.test(text) && Number(text) <= 1_000_000_000 ? Number(text) : undefined;
}

/** A hundred years. */
const mostDays = 36_500;

function days(text: string): number | "forever" | undefined {
  if (text === "forever") return text;
  return /^[1-9]\d{0,4}$/.test(text) && Number(text) <= mostDays ? Number(text) : undefined;
}

function secret(text: string): string | undefined {
  return isOperatorKey(text) ? text : undefined;
}

function url(...protocols: string[]) {
  return (text: string) => (isUrl(text) && protocols.includes(new URL(text).protocol) ? text : undefined);
}

/** What clients will take apart and decode must be decodable. */
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

/** One or several URLs that differ in the host and port alone: all nodes of a cluster are reached in the same way. */
function nodes(parse: (text: string) => string | undefined) {
  return (text: string) => {
    const parts = text.split(",").map((part) => part.trim());
    if (!parts.every(parse)) return undefined;
    const ways = parts.map((part) => new URL(part)).map((node) => [node.protocol, node.username, node.password].join());
    return new Set(ways).size === 1 ? parts : undefined;
  };
}

function yesOrNo(text: string): boolean | undefined {
  return { true: true, false: false }[text];
}

function onOrOff(text: string): boolean | undefined {
  return { on: true, off: false }[text];
}

function oneOf<T extends string>(values: readonly T[]) {
  return (text: string) => values.find((value) => value === text);
}

/** Whether this can be the operator's credential: what a header can carry, and nobody guesses. */
export function isOperatorKey(text: string): boolean {
  return /^[!-~]{24,}$/.test(text);
}
