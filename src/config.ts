import { readFileSync } from "node:fs";
import { isIP } from "node:net";
import { join, resolve } from "node:path";
import { type OperatorCredential, operatorActor, unnamedOperator } from "./call/operators.js";
import { UserError } from "./errors.js";
import type { CertificateFiles } from "./net/certificates.js";
import { type LogLevel, logLevels } from "./observe/log.js";
import type { Quotas } from "./quotas/quotas.js";
import type { RateLimit } from "./rate-limit/counter.js";
import type { RedisAddress } from "./storage/redis/client.js";

/** The configuration of this process. */
export interface Config {
  /** The address that the HTTP and gRPC ports listen on. */
  readonly host: string;
  readonly httpPort: number;
  readonly grpcPort: number;
  /** The address that the metrics port listens on. */
  readonly metricsHost: string;
  /** Undefined: metrics are not served. */
  readonly metricsPort: number | undefined;
  /** Undefined: the ports are not encrypted. */
  readonly tls: CertificateFiles | undefined;
  /** The origins whose pages may call the HTTP port from a browser; `*` for all. Empty: none. */
  readonly corsOrigins: readonly string[];
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
  /** The operator credentials. Empty: the service generates one and stores it in dataDir. */
  readonly operators: readonly OperatorCredential[];
  /** Undefined: there is no rate limit. */
  readonly rateLimit: RateLimit | undefined;
  readonly quotas: Quotas;
  readonly maxCounters: number;
  /** For how many days audit events are kept. Not Infinity: workers receive this as JSON, which cannot encode it. */
  readonly auditRetentionDays: number | "forever";
  /** For how many days the rows of deleted keys, identities, roles and APIs are kept. */
  readonly deletedRetentionDays: number | "forever";
  /** For how many days the counts of verifications are kept. */
  readonly usageRetentionDays: number | "forever";
  /** For how many hours a retry with the same idempotency key gets the first response. */
  readonly idempotencyRetentionHours: number;
  /** The size of the key cache in process memory, in MiB. */
  readonly cacheMb: number;
  /** The base of error type URLs. Undefined: the address that the client has used. */
  readonly docsBaseUrl: string | undefined;
  readonly logLevel: LogLevel;
  /** The commit that the running code was built from, if it is known. */
  readonly buildCommit: string | undefined;
  /** The search path for programs (PATH). */
  readonly searchPath: string;
}

/** Reads the whole configuration, or throws an error with all problems. Nothing else reads the environment. */
export function readConfig(environment: NodeJS.ProcessEnv): Config {
  const { read, isSet, problems, assertValid } = createReader(environment);

  const cluster = read("REDIS_CLUSTER");
  const urls = read("REDIS_URL", cluster ? redisNodes : redisServer);
  if (cluster && !isSet("REDIS_URL")) problems.push("REDIS_CLUSTER needs a REDIS_URL");

  const certFile = read("TLS_CERT_FILE");
  const keyFile = read("TLS_KEY_FILE");
  const clientCaFile = read("TLS_CLIENT_CA_FILE");
  const tls = certFile && keyFile ? { certFile, keyFile, clientCaFile } : undefined;
  if (certFile && !keyFile) problems.push("TLS_CERT_FILE needs a TLS_KEY_FILE");
  if (keyFile && !certFile) problems.push("TLS_KEY_FILE needs a TLS_CERT_FILE");
  if (clientCaFile && !certFile && !keyFile) {
    problems.push("TLS_CLIENT_CA_FILE needs a TLS_CERT_FILE and a TLS_KEY_FILE");
  }

  const requests = read("RATE_LIMIT");
  const windowSeconds = read("RATE_LIMIT_SECONDS");
  if (isSet("RATE_LIMIT_SECONDS") && !isSet("RATE_LIMIT")) problems.push("RATE_LIMIT_SECONDS needs a RATE_LIMIT");

  const databaseUrl = read("DATABASE_URL");
  const dataDir = read("DATA_DIR");
  const operatorKey = read("OPERATOR_KEY");
  const namedKeys = read("OPERATOR_KEYS") ?? [];
  if (namedKeys.some(({ key }) => key === operatorKey)) {
    problems.push("OPERATOR_KEY and OPERATOR_KEYS contain the same key; remove it from one of them");
  }
  if (databaseUrl !== undefined && !isSet("OPERATOR_KEY") && !isSet("OPERATOR_KEYS")) {
    problems.push(
      `DATABASE_URL needs an OPERATOR_KEY, because each process would create another one; to use one that was created earlier, set OPERATOR_KEY_FILE=${join(dataDir, "operator.key")}`,
    );
  }

  const host = read("HOST");
  const config: Config = Object.freeze({
    host,
    httpPort: read("HTTP_PORT"),
    grpcPort: read("GRPC_PORT"),
    metricsHost: read("METRICS_HOST") ?? host,
    metricsPort: read("METRICS_PORT"),
    tls,
    corsOrigins: read("CORS_ORIGINS") ?? [],
    grpcKeepaliveMs: read("GRPC_KEEPALIVE_MS"),
    grpcMaxConnectionAgeMs: read("GRPC_MAX_CONNECTION_AGE_MS"),
    grpcReflection: read("GRPC_REFLECTION"),
    maxConnections: read("MAX_CONNECTIONS"),
    shutdownDelayMs: read("SHUTDOWN_DELAY_MS"),
    workers: read("WORKERS"),
    databaseUrl,
    redis: urls && { urls, cluster },
    dataDir,
    operators: [...(operatorKey === undefined ? [] : [{ actor: unnamedOperator, key: operatorKey }]), ...namedKeys],
    rateLimit: requests === undefined ? undefined : { requests, windowSeconds },
    quotas: {
      keys: read("QUOTA_KEYS"),
      identities: read("QUOTA_IDENTITIES"),
      bytes: read("QUOTA_STORED_MB") * 1024 * 1024,
    },
    maxCounters: read("QUOTA_COUNTERS"),
    auditRetentionDays: read("AUDIT_RETENTION_DAYS"),
    deletedRetentionDays: read("DELETED_RETENTION_DAYS"),
    usageRetentionDays: read("USAGE_RETENTION_DAYS"),
    idempotencyRetentionHours: read("IDEMPOTENCY_RETENTION_HOURS"),
    cacheMb: read("CACHE_MB"),
    docsBaseUrl: read("DOCS_BASE_URL"),
    logLevel: read("LOG_LEVEL"),
    buildCommit: read("BUILD_COMMIT"),
    searchPath: environment["PATH"] ?? "",
  });

  const ports = [config.httpPort, config.grpcPort, config.metricsPort].filter(Boolean);
  if (problems.length === 0 && new Set(ports).size < ports.length) {
    problems.push("HTTP_PORT, GRPC_PORT and METRICS_PORT must differ");
  }
  assertValid();
  return config;
}

/** The database of a command that uses nothing else of the configuration. Undefined: none is set. */
export function readDatabaseUrl(environment: NodeJS.ProcessEnv): string | undefined {
  const { read, assertValid } = createReader(environment);
  const databaseUrl = read("DATABASE_URL");
  assertValid();
  return databaseUrl;
}

/** Reads settings by their names, and collects all problems. */
function createReader(environment: NodeJS.ProcessEnv) {
  const problems: string[] = [];
  const variables = new Map<Name, Found | undefined>();

  /** Finds each variable once, because the file of a secret may be readable only once. */
  function find(name: Name): Found | undefined {
    if (!variables.has(name)) variables.set(name, findVariable(environment, name));
    return variables.get(name);
  }

  function read<N extends Name>(name: N): Value<N>;
  function read<N extends Name>(name: N, format: Format<NonNullable<Value<N>>>): Value<N>;
  function read(name: Name, format: Format<unknown> = settings[name].format): unknown {
    const setting: Setting = settings[name];
    const fallback = setting.isOptional ? undefined : format.parse(setting.default);
    const found = find(name);
    if (found === undefined) return fallback;
    if ("problem" in found) {
      problems.push(found.problem);
      return fallback;
    }
    const value = format.parse(found.text);
    if (value === undefined) problems.push(`${found.source} must be ${format.expected(found.text)}`);
    return value ?? fallback;
  }

  return {
    problems,
    read,
    isSet: (name: Name) => find(name) !== undefined,
    assertValid() {
      if (problems.length > 0) throw new UserError(`The configuration is invalid:\n  ${problems.join("\n  ")}`);
    },
  };
}

/** The text of a setting, and where it comes from. */
type Found = { readonly text: string; readonly source: string } | { readonly problem: string };

/**
 * Finds the variable of a setting. The one with the prefix takes precedence, because the other may be meant for another
 * program. An empty variable counts as unset, because `VAR= npm start` and most templates mean that.
 */
function findVariable(environment: NodeJS.ProcessEnv, name: Name): Found | undefined {
  const { isSecret, acceptsUnprefixed }: Setting = settings[name];
  for (const variable of [`${variablePrefix}${name}`, name]) {
    const text = environment[variable] || undefined;
    const file = (isSecret && environment[`${variable}_FILE`]) || undefined;
    if (text !== undefined && file !== undefined) {
      return { problem: `${variable} and ${variable}_FILE are both set; unset one of them` };
    }
    if (file !== undefined) return readSecretFile(`${variable}_FILE`, file);
    const isMeant = variable !== name || acceptsUnprefixed === undefined || acceptsUnprefixed(text ?? "");
    if (text !== undefined && isMeant) return { text, source: variable };
  }
  return undefined;
}

/** Every variable is also read with this prefix. */
const variablePrefix = "LATCHKEY_";

/** Reads a secret from its file. Editors and `echo` end a file with a newline, which is not part of the secret. */
function readSecretFile(variable: string, file: string): Found {
  try {
    const text = readFileSync(file, "utf8").trimEnd();
    return text === ""
      ? { problem: `${variable} must be a file with the secret, and ${file} is empty` }
      : { text, source: `the content of ${file} (${variable})` };
  } catch (error) {
    const { code = "unknown error" } = error as NodeJS.ErrnoException;
    return { problem: `${variable} must be a readable file, and ${file} is not (${code})` };
  }
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
    dataDir: createReader(environment).read("DATA_DIR"),
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

const anyPort = integer(0, 65_535, "port number");

const port: Format<number> = {
  ...anyPort,
  expected: (text) => anyPort.expected(text) + (text.startsWith("tcp://") ? serviceLinksHint : ""),
};

/** Kubernetes sets LATCHKEY_HTTP_PORT=tcp://… in every container, if there is a Service with the name latchkey-http. */
const serviceLinksHint = ". Kubernetes sets this variable for a Service: set enableServiceLinks: false in the Pod";

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

/** At most a month: each response takes space, and no client retries for longer. */
const hours = integer(1, 720, "number of hours");

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

/** Each new connection compares its credential with all of them. */
const maxNamedKeys = 32;

/** Separated by commas or, in a file, by lines. Two keys of the same name are valid while one replaces the other. */
const namedSecrets: Format<readonly OperatorCredential[]> = {
  parse(text) {
    const entries = text.split(/[\s,]+/).filter(Boolean);
    const credentials = entries.flatMap((entry) => {
      const [, name = "", key = ""] = /^([A-Za-z0-9._@-]{1,64}):(.+)$/.exec(entry) ?? [];
      return name !== "" && isOperatorKey(key) ? [{ actor: operatorActor(name), key }] : [];
    });
    const isValid = credentials.length === entries.length && entries.length >= 1 && entries.length <= maxNamedKeys;
    return isValid && new Set(credentials.map(({ key }) => key)).size === entries.length ? credentials : undefined;
  },
  expected: () =>
    `1 to ${maxNamedKeys} different keys with their names, such as alice:key,deploy:key; a name has 1 to 64 letters, digits, dots, hyphens, underscores and @, and a key has at least 24 printable ASCII characters without spaces and commas`,
};

/** Browsers send an origin in exactly this form. */
const origins: Format<readonly string[]> = {
  parse(text) {
    const list = text.split(",").map((origin) => origin.trim());
    const isOrigin = (origin: string) => /^https?:/.test(origin) && isUrl(origin) && new URL(origin).origin === origin;
    return text === "*" || list.every(isOrigin) ? list : undefined;
  },
  expected: () =>
    "* or origins such as https://app.example.com,http://localhost:3000, in lower case and without a path",
};

const commit: Format<string> = {
  parse: (text) => (/^[0-9a-f]{7,64}$/.test(text) ? text : undefined),
  expected: () => "a commit hash of 7 to 64 hexadecimal digits",
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

/** A setting of the service: an environment variable, its format, and its documentation. */
export interface Setting<T = unknown> {
  /** The value of an unset variable. If the setting is optional, a word for what happens without it. */
  readonly default: string;
  readonly description: string;
  readonly format: Format<T>;
  readonly isOptional: boolean;
  /** Whether it is a secret. A secret can also be read from the file that the variable with the suffix _FILE names. */
  readonly isSecret?: true;
  /** Whether a value of the variable without the prefix is meant for this service. Absent: always. */
  readonly acceptsUnprefixed?: (text: string) => boolean;
}

type Name = keyof typeof settings;

type Value<N extends Name> = (typeof settings)[N] extends Setting<infer T> ? T : never;

/** A setting with a default value. */
function withDefault<T>(value: string, format: Format<T>, description: string): Setting<T> {
  return { default: value, description, format, isOptional: false };
}

/** A setting that is undefined if it is not set. */
function optional<T>(without: string, format: Format<T>, description: string): Setting<T | undefined> {
  return { default: without, description, format, isOptional: true };
}

/** A setting whose value is a secret or contains one. */
function optionalSecret<T>(without: string, format: Format<T>, description: string): Setting<T | undefined> {
  return { ...optional(without, format, description), isSecret: true };
}

/** All settings of the service, in the order of their documentation. */
export const settings = {
  HOST: {
    ...withDefault("127.0.0.1", hostName, "The address that the ports listen on. If it is a name, its first address."),
    // Some shells set HOST to the name of the machine. Used as an address, it could be one of a public network.
    acceptsUnprefixed: (text: string) => isIP(text) > 0 || text === "localhost",
  },
  HTTP_PORT: withDefault("8080", port, "HTTP/JSON and Connect."),
  GRPC_PORT: withDefault("50051", port, "gRPC."),
  METRICS_PORT: optional("off", port, "Prometheus metrics, at /metrics, and the probes /livez and /readyz."),
  METRICS_HOST: optional("the value of HOST", hostName, "The address that METRICS_PORT listens on."),
  TLS_CERT_FILE: optional("off", path, "A certificate in PEM format. With TLS_KEY_FILE, it turns on TLS."),
  TLS_KEY_FILE: optional("off", path, "The key of that certificate, in PEM format."),
  TLS_CLIENT_CA_FILE: optional(
    "off",
    path,
    "The CAs of client certificates. If set, every client needs a certificate.",
  ),
  CORS_ORIGINS: optional(
    "off",
    origins,
    "The origins whose pages may call from a browser, separated by commas; * for all.",
  ),
  GRPC_KEEPALIVE_MS: withDefault("60000", interval, "The interval of keepalive pings on a gRPC connection."),
  GRPC_REFLECTION: withDefault("on", onOrOff, "Server reflection on the gRPC port: on or off."),
  GRPC_MAX_CONNECTION_AGE_MS: optional("off", interval, "The maximum age of a gRPC connection."),
  MAX_CONNECTIONS: withDefault(
    "10000",
    connectionCount,
    "The maximum number of connections of each port, in each process.",
  ),
  SHUTDOWN_DELAY_MS: withDefault(
    "0",
    delay,
    "At shutdown, how long the ports stay open after the service is not ready.",
  ),
  WORKERS: withDefault(
    "1",
    workerCount,
    "The number of processes that serve the ports, 1 to 64. Set it to the number of cores.",
  ),

  DATABASE_URL: optionalSecret("embedded", databaseUrl, "The PostgreSQL to use. If set, no embedded backend starts."),
  REDIS_URL: optionalSecret(
    "embedded",
    redisServer,
    "The Redis or Valkey to use. With DATABASE_URL alone, none is used.",
  ),
  REDIS_CLUSTER: withDefault("false", trueOrFalse, "true if REDIS_URL is a cluster."),
  DATA_DIR: withDefault(".latchkey", path, "The folder of the embedded backends and of created credentials."),
  CACHE_MB: withDefault("128", integer(8, 2048, "number of MiB"), "The size of the key cache of each process, in MiB."),

  OPERATOR_KEY: optionalSecret(
    "created, and stored in DATA_DIR",
    secret,
    "The operator credential, at least 24 characters.",
  ),
  OPERATOR_KEYS: optionalSecret("none", namedSecrets, "Operator credentials with names, such as alice:key,deploy:key."),

  RATE_LIMIT: optional("off", requestCount, "The number of requests of a workspace in one window."),
  RATE_LIMIT_SECONDS: withDefault(
    "60",
    integer(1, 86_400, "number of seconds"),
    "The length of that window in seconds.",
  ),
  QUOTA_KEYS: withDefault("1000000", quota, "The maximum number of keys of a workspace."),
  QUOTA_IDENTITIES: withDefault("1000000", quota, "The maximum number of identities of a workspace."),
  QUOTA_STORED_MB: withDefault(
    "10240",
    quota,
    "The maximum storage of a workspace in MiB, audit events and responses for an Idempotency-Key included.",
  ),
  QUOTA_COUNTERS: withDefault(
    "250000",
    quota,
    "The maximum number of rate-limit counters of a workspace that a process keeps in Redis.",
  ),
  AUDIT_RETENTION_DAYS: withDefault("90", days, "The retention of audit events in days, or forever."),
  DELETED_RETENTION_DAYS: withDefault("1", days, "The retention of deleted rows in days, or forever."),
  USAGE_RETENTION_DAYS: withDefault("90", days, "The retention of the counts of verifications in days, or forever."),
  IDEMPOTENCY_RETENTION_HOURS: withDefault("24", hours, "How long an idempotency key is remembered, in hours."),

  DOCS_BASE_URL: optional("the address of the request", baseUrl, "The beginning of the type URLs of errors."),
  LOG_LEVEL: withDefault("info", logLevel, `One of ${logLevels.join(", ")}.`),
  BUILD_COMMIT: optional("unknown", commit, "The commit of this build, for the metric latchkey_build_info."),
} satisfies Record<string, Setting>;

/** Whether a text can be the operator credential: valid in a header, and too long to guess. */
export function isOperatorKey(text: string): boolean {
  return /^[!-~]{24,}$/.test(text);
}
