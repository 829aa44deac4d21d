import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { afterAll, describe, expect, it } from "vitest";
import { readClientConfig, readConfig, readDatabaseUrl, settings } from "../../src/config.js";
import { UserError } from "../../src/errors.js";

/** The error message for an invalid environment. */
function errorFor(environment: NodeJS.ProcessEnv): string {
  try {
    readConfig(environment);
  } catch (error) {
    expect(error).toBeInstanceOf(UserError);
    return error instanceof Error ? error.message : "";
  }
  throw new Error("the configuration was accepted");
}

/** An operator key of this character. */
const key = (character: string) => character.repeat(24);

describe("the configuration", () => {
  const defaults = {
    host: "127.0.0.1",
    httpPort: 8080,
    grpcPort: 50051,
    metricsHost: "127.0.0.1",
    metricsPort: undefined,
    tls: undefined,
    corsOrigins: [],
    grpcKeepaliveMs: 60_000,
    grpcMaxConnectionAgeMs: undefined,
    grpcReflection: true,
    maxConnections: 10_000,
    shutdownDelayMs: 0,
    workers: 1,
    databaseUrl: undefined,
    redis: undefined,
    dataDir: resolve(".latchkey"),
    operators: [],
    rateLimit: undefined,
    quotas: { keys: 1_000_000, identities: 1_000_000, bytes: 10 * 1024 ** 3 },
    maxCounters: 250_000,
    auditRetentionDays: 90,
    deletedRetentionDays: 1,
    usageRetentionDays: 90,
    idempotencyRetentionHours: 24,
    cacheMb: 128,
    docsBaseUrl: undefined,
    logLevel: "info",
    buildCommit: undefined,
    searchPath: "",
  };

  it("has a default for everything", () => {
    expect(readConfig({})).toEqual(defaults);
  });

  it("treats an empty variable as unset", () => {
    const names = Object.keys(settings).flatMap((name) => [name, `LATCHKEY_${name}`, `${name}_FILE`]);
    expect(readConfig(Object.fromEntries(names.map((name) => [name, ""])))).toEqual(defaults);
  });

  it.each([
    ["HOST", "0.0.0.0", { host: "0.0.0.0" }],
    ["HOST", "::1", { host: "::1" }],
    ["HOST", "localhost", { host: "localhost" }],
    ["LATCHKEY_HOST", "latchkey.internal", { host: "latchkey.internal" }],
    ["METRICS_HOST", "0.0.0.0", { metricsHost: "0.0.0.0" }],
    ["CORS_ORIGINS", "*", { corsOrigins: ["*"] }],
    [
      "CORS_ORIGINS",
      "https://app.example.com, http://localhost:3000",
      { corsOrigins: ["https://app.example.com", "http://localhost:3000"] },
    ],
    ["HTTP_PORT", "80", { httpPort: 80 }],
    ["HTTP_PORT", "0", { httpPort: 0 }],
    ["GRPC_PORT", "65535", { grpcPort: 65_535 }],
    ["METRICS_PORT", "9464", { metricsPort: 9464 }],
    ["METRICS_PORT", "0", { metricsPort: 0 }],
    ["GRPC_KEEPALIVE_MS", "1000", { grpcKeepaliveMs: 1_000 }],
    ["GRPC_MAX_CONNECTION_AGE_MS", "86400000", { grpcMaxConnectionAgeMs: 86_400_000 }],
    ["GRPC_REFLECTION", "off", { grpcReflection: false }],
    ["MAX_CONNECTIONS", "10", { maxConnections: 10 }],
    ["MAX_CONNECTIONS", "1000000", { maxConnections: 1_000_000 }],
    ["SHUTDOWN_DELAY_MS", "0", { shutdownDelayMs: 0 }],
    ["SHUTDOWN_DELAY_MS", "60000", { shutdownDelayMs: 60_000 }],
    ["WORKERS", "1", { workers: 1 }],
    ["WORKERS", "64", { workers: 64 }],
    ["REDIS_URL", "redis://cache:6379", { redis: { urls: ["redis://cache:6379"], cluster: false } }],
    ["REDIS_URL", "rediss://:p@cache/1", { redis: { urls: ["rediss://:p@cache/1"], cluster: false } }],
    ["REDIS_CLUSTER", "false", {}],
    ["DATA_DIR", "/var/lib/latchkey", { dataDir: "/var/lib/latchkey" }],
    ["DATA_DIR", "data", { dataDir: resolve("data") }],
    ["OPERATOR_KEY", key("a"), { operators: [{ actor: "operator", key: key("a") }] }],
    [
      "OPERATOR_KEYS",
      `alice:${key("a")},deploy:${key(":")}`,
      {
        operators: [
          { actor: "operator:alice", key: key("a") },
          { actor: "operator:deploy", key: key(":") },
        ],
      },
    ],
    [
      "OPERATOR_KEYS",
      `alice@example.com:${key("a")}\nalice@example.com:${key("b")}\n`,
      {
        operators: [
          { actor: "operator:alice@example.com", key: key("a") },
          { actor: "operator:alice@example.com", key: key("b") },
        ],
      },
    ],
    ["BUILD_COMMIT", "0123abc", { buildCommit: "0123abc" }],
    ["RATE_LIMIT", "1", { rateLimit: { requests: 1, windowSeconds: 60 } }],
    ["RATE_LIMIT", "1000000000", { rateLimit: { requests: 1_000_000_000, windowSeconds: 60 } }],
    ["QUOTA_KEYS", "1", { quotas: { keys: 1, identities: 1_000_000, bytes: 10 * 1024 ** 3 } }],
    ["QUOTA_IDENTITIES", "1000000000", { quotas: { keys: 1_000_000, identities: 1e9, bytes: 10 * 1024 ** 3 } }],
    ["QUOTA_COUNTERS", "1", { maxCounters: 1 }],
    ["QUOTA_STORED_MB", "1", { quotas: { keys: 1_000_000, identities: 1_000_000, bytes: 1024 ** 2 } }],
    ["AUDIT_RETENTION_DAYS", "1", { auditRetentionDays: 1 }],
    ["AUDIT_RETENTION_DAYS", "36500", { auditRetentionDays: 36_500 }],
    ["AUDIT_RETENTION_DAYS", "forever", { auditRetentionDays: "forever" }],
    ["DELETED_RETENTION_DAYS", "30", { deletedRetentionDays: 30 }],
    ["DELETED_RETENTION_DAYS", "forever", { deletedRetentionDays: "forever" }],
    ["USAGE_RETENTION_DAYS", "400", { usageRetentionDays: 400 }],
    ["IDEMPOTENCY_RETENTION_HOURS", "1", { idempotencyRetentionHours: 1 }],
    ["IDEMPOTENCY_RETENTION_HOURS", "720", { idempotencyRetentionHours: 720 }],
    ["CACHE_MB", "8", { cacheMb: 8 }],
    ["CACHE_MB", "2048", { cacheMb: 2048 }],
    ["DOCS_BASE_URL", "https://docs.example.com", { docsBaseUrl: "https://docs.example.com" }],
    ["DOCS_BASE_URL", "https://example.com/docs//", { docsBaseUrl: "https://example.com/docs" }],
    ["LOG_LEVEL", "silent", { logLevel: "silent" }],
    ["PATH", "/usr/bin:/bin", { searchPath: "/usr/bin:/bin" }],
  ])("reads %s=%s", (name, value, expected) => {
    expect(readConfig({ [name]: value })).toEqual({ ...defaults, ...hostOf(expected), ...expected });
  });

  /** Without METRICS_HOST, the metrics port has the address of the others. */
  function hostOf(expected: object) {
    return "host" in expected ? { metricsHost: expected.host } : {};
  }

  it.each(["postgres://u:p@db:5432/latchkey", "postgresql://db/latchkey", "postgres://u:p@%2Frun%2Fpg/db"])(
    "reads DATABASE_URL=%s with an OPERATOR_KEY",
    (databaseUrl) => {
      const operators = [{ actor: "operator", key: key("a") }];
      const read = readConfig({ DATABASE_URL: databaseUrl, OPERATOR_KEY: key("a") });
      expect(read).toEqual({ ...defaults, databaseUrl, operators });
    },
  );

  it("accepts OPERATOR_KEY together with OPERATOR_KEYS, so that named keys can replace it", () => {
    const { operators } = readConfig({ OPERATOR_KEY: key("a"), OPERATOR_KEYS: `alice:${key("b")}` });
    expect(operators.map(({ actor }) => actor)).toEqual(["operator", "operator:alice"]);
  });

  it.each([
    ["one node", "redis://one:7000", ["redis://one:7000"]],
    ["several nodes", "redis://one:7000, redis://two:7001", ["redis://one:7000", "redis://two:7001"]],
  ])("accepts %s of a Redis cluster", (_what, list, urls) => {
    const read = readConfig({ REDIS_URL: list, REDIS_CLUSTER: "true" });
    expect(read).toEqual({ ...defaults, redis: { urls, cluster: true } });
  });

  it("resolves relative paths of certificates against the current folder", () => {
    const pair = { TLS_CERT_FILE: "tls.crt", TLS_KEY_FILE: "/etc/tls.key" };
    const tls = { certFile: resolve("tls.crt"), keyFile: "/etc/tls.key", clientCaFile: undefined };
    expect(readConfig(pair)).toEqual({ ...defaults, tls });
    const mutual = readConfig({ ...pair, TLS_CLIENT_CA_FILE: "/etc/ca.crt" });
    expect(mutual).toEqual({ ...defaults, tls: { ...tls, clientCaFile: "/etc/ca.crt" } });
  });

  it("accepts a rate limit with a window of any length", () => {
    const read = readConfig({ RATE_LIMIT: "5", RATE_LIMIT_SECONDS: "86400" });
    expect(read).toEqual({ ...defaults, rateLimit: { requests: 5, windowSeconds: 86_400 } });
  });

  it("survives JSON, by which workers receive it: unlimited retention does not become zero", () => {
    const read = readConfig({ AUDIT_RETENTION_DAYS: "forever" });
    expect(JSON.parse(JSON.stringify(read))).toEqual({ ...defaults, auditRetentionDays: "forever" });
  });

  it("is frozen", () => {
    expect(Object.isFrozen(readConfig({}))).toBe(true);
  });
});

describe("an invalid configuration", () => {
  it.each([
    ["LATCHKEY_HOST", "two words"],
    ["METRICS_HOST", "two words"],
    ["CORS_ORIGINS", "app.example.com"],
    ["CORS_ORIGINS", "https://app.example.com/"],
    ["CORS_ORIGINS", "https://App.example.com"],
    ["CORS_ORIGINS", "https://app.example.com:443"],
    ["CORS_ORIGINS", "https://app.example.com,*"],
    ["CORS_ORIGINS", "https://app.example.com,"],
    ["CORS_ORIGINS", "null"],
    ["CORS_ORIGINS", "javascript://a"],
    ["BUILD_COMMIT", "main"],
    ["HTTP_PORT", "http"],
    ["HTTP_PORT", "65536"],
    ["HTTP_PORT", "-1"],
    ["HTTP_PORT", "80.5"],
    ["HTTP_PORT", " 80"],
    ["HTTP_PORT", "0x50"],
    ["GRPC_PORT", "1e3"],
    ["METRICS_PORT", "metrics"],
    ["METRICS_PORT", "65536"],
    ["GRPC_KEEPALIVE_MS", "999"],
    ["GRPC_KEEPALIVE_MS", "1m"],
    ["GRPC_MAX_CONNECTION_AGE_MS", "86400001"],
    ["QUOTA_KEYS", "0"],
    ["QUOTA_IDENTITIES", "1e6"],
    ["QUOTA_STORED_MB", "1000000001"],
    ["AUDIT_RETENTION_DAYS", "0"],
    ["AUDIT_RETENTION_DAYS", "36501"],
    ["AUDIT_RETENTION_DAYS", "never"],
    ["DELETED_RETENTION_DAYS", "0"],
    ["USAGE_RETENTION_DAYS", "1.5"],
    ["IDEMPOTENCY_RETENTION_HOURS", "0"],
    ["IDEMPOTENCY_RETENTION_HOURS", "721"],
    ["IDEMPOTENCY_RETENTION_HOURS", "forever"],
    ["MAX_CONNECTIONS", "9"],
    ["MAX_CONNECTIONS", "1000001"],
    ["MAX_CONNECTIONS", "many"],
    ["SHUTDOWN_DELAY_MS", "60001"],
    ["SHUTDOWN_DELAY_MS", "5s"],
    ["WORKERS", "0"],
    ["WORKERS", "65"],
    ["WORKERS", "-1"],
    ["WORKERS", "1.5"],
    ["WORKERS", "auto"],
    ["RATE_LIMIT", "0"],
    ["RATE_LIMIT", "off"],
    ["RATE_LIMIT", "1000000001"],
    ["CACHE_MB", "7"],
    ["CACHE_MB", "2049"],
    ["CACHE_MB", "12.5"],
    ["CACHE_MB", "1g"],
    ["DATABASE_URL", "mysql://db/latchkey"],
    ["DATABASE_URL", "db:5432"],
    ["DATABASE_URL", "nonsense"],
    ["DATABASE_URL", "postgres://u:p@%zz/latchkey"],
    ["REDIS_URL", "http://cache"],
    ["REDIS_URL", "cache:6379"],
    ["REDIS_URL", "redis://one:7000,"],
    ["REDIS_URL", "redis://one:7000,http://two"],
    ["REDIS_URL", "redis://one:7000,redis://two:7000"],
    ["REDIS_CLUSTER", "yes"],
    ["REDIS_CLUSTER", "TRUE"],
    ["REDIS_CLUSTER", "1"],
    ["OPERATOR_KEY", "short"],
    ["OPERATOR_KEY", "twenty-four characters, but spaces"],
    ["OPERATOR_KEY", "ünprintable-in-a-header-ünprintable"],
    ["OPERATOR_KEYS", key("a")],
    ["OPERATOR_KEYS", "alice:short"],
    ["OPERATOR_KEYS", `:${key("a")}`],
    ["OPERATOR_KEYS", `alice and bob:${key("a")}`],
    ["OPERATOR_KEYS", `${"a".repeat(65)}:${key("a")}`],
    ["OPERATOR_KEYS", `alice:${key("a")},bob:${key("a")}`],
    ["OPERATOR_KEYS", Array.from({ length: 33 }, (_, index) => `alice:${key("a")}${index}`).join()],
    ["OPERATOR_KEYS", ","],
    ["DOCS_BASE_URL", "docs.example.com"],
    ["DOCS_BASE_URL", "javascript:alert(1)"],
    ["LOG_LEVEL", "loud"],
    ["LOG_LEVEL", "INFO"],
  ])("%s=%s is the only reported problem, by its name", (name, value) => {
    const [, ...problems] = errorFor({ [name]: value }).split("\n");
    expect(problems).toEqual([expect.stringMatching(new RegExp(`^ *${name} must be `))]);
  });

  it.each([
    ["HTTP_PORT", "65536", 'a port number from 0 to 65535; it is "65536"'],
    ["RATE_LIMIT", "0", 'a number of requests from 1 to 1000000000, or unset for no limit; it is "0"'],
    ["AUDIT_RETENTION_DAYS", "never", 'a number of days from 1 to 36500, or forever; it is "never"'],
    ["CACHE_MB", "9".repeat(30), `a number of MiB from 8 to 2048; it is "${"9".repeat(20)}…"`],
  ])("%s=%s is reported with the valid range and the value", (name, value, expected) => {
    expect(errorFor({ [name]: value })).toBe(`The configuration is invalid:\n  ${name} must be ${expected}`);
  });

  it.each([
    ["DATABASE_URL", "mysql://user:password@db/latchkey"],
    ["REDIS_URL", "http://:password@cache"],
    ["OPERATOR_KEY", "password"],
    ["OPERATOR_KEYS", "alice:password"],
  ])("%s is reported without its value, which may contain a secret", (name, value) => {
    expect(errorFor({ [name]: value })).not.toContain(value);
  });

  it("is reported with all problems at once", () => {
    const wrong = {
      HTTP_PORT: "x",
      GRPC_PORT: "y",
      DATABASE_URL: "z",
      REDIS_URL: "z",
      OPERATOR_KEY: "z",
      LOG_LEVEL: "z",
    };
    const message = errorFor(wrong);
    for (const name of Object.keys(wrong)) expect(message).toContain(`${name} must be `);
  });

  it("with one port for HTTP and gRPC is refused, unless both are 0 (a free port each)", () => {
    expect(errorFor({ HTTP_PORT: "9000", GRPC_PORT: "9000" })).toContain(
      "HTTP_PORT, GRPC_PORT and METRICS_PORT must differ",
    );
    expect(errorFor({ GRPC_PORT: "8080" })).toContain("HTTP_PORT, GRPC_PORT and METRICS_PORT must differ");
    expect(readConfig({ HTTP_PORT: "0", GRPC_PORT: "0" })).toMatchObject({ httpPort: 0, grpcPort: 0 });
  });

  it.each([
    { METRICS_PORT: "8080" },
    { METRICS_PORT: "50051" },
    { METRICS_PORT: "9000", HTTP_PORT: "9000" },
    { METRICS_PORT: "9000", GRPC_PORT: "9000" },
  ])("with the metrics on the HTTP or gRPC port is refused: %o", (ports) => {
    expect(errorFor(ports)).toContain("HTTP_PORT, GRPC_PORT and METRICS_PORT must differ");
  });

  it("with port 0 for HTTP, gRPC and metrics is accepted", () => {
    const free = { HTTP_PORT: "0", GRPC_PORT: "0", METRICS_PORT: "0" };
    expect(readConfig(free)).toMatchObject({ httpPort: 0, grpcPort: 0, metricsPort: 0 });
  });

  it("with a Redis cluster but no URL is refused, and both variables are named", () => {
    const [, ...problems] = errorFor({ REDIS_CLUSTER: "true" }).split("\n");
    expect(problems).toEqual([expect.stringContaining("REDIS_CLUSTER needs a REDIS_URL")]);
  });

  it.each([
    [["TLS_CERT_FILE"], "TLS_CERT_FILE needs a TLS_KEY_FILE"],
    [["TLS_KEY_FILE"], "TLS_KEY_FILE needs a TLS_CERT_FILE"],
    [["TLS_CLIENT_CA_FILE"], "TLS_CLIENT_CA_FILE needs a TLS_CERT_FILE and a TLS_KEY_FILE"],
    [["TLS_CLIENT_CA_FILE", "TLS_CERT_FILE"], "TLS_CERT_FILE needs a TLS_KEY_FILE"],
  ])("with %s alone is refused, and the missing variable is named", (names, problem) => {
    const [, ...problems] = errorFor(Object.fromEntries(names.map((name) => [name, "/etc/file"]))).split("\n");
    expect(problems.map((line) => line.trim())).toEqual([problem]);
  });

  it.each(["0", "0.5", "86401", "1m"])(
    "with a rate limit window of %s is refused, and the variable is named",
    (text) => {
      const [, ...problems] = errorFor({ RATE_LIMIT: "600", RATE_LIMIT_SECONDS: text }).split("\n");
      expect(problems).toEqual([expect.stringMatching(/^ *RATE_LIMIT_SECONDS must be /)]);
    },
  );

  it("with a rate limit window but no limit is refused, and the missing variable is named", () => {
    const [, ...problems] = errorFor({ RATE_LIMIT_SECONDS: "60" }).split("\n");
    expect(problems).toEqual([expect.stringContaining("RATE_LIMIT_SECONDS needs a RATE_LIMIT")]);
  });

  it("with several URLs but no cluster is refused with a hint at REDIS_CLUSTER", () => {
    const several = { REDIS_URL: "redis://one:7000,redis://two:7000", REDIS_CLUSTER: "false" };
    expect(errorFor(several)).toMatch(/REDIS_URL must be one URL .*, or several URLs if REDIS_CLUSTER is true/);
  });

  it("is reported without values that may be secrets", () => {
    const wrong = { DATABASE_URL: "mysql://u:topsecret@db", REDIS_URL: "topsecret@cache", OPERATOR_KEY: "topsecret" };
    expect(errorFor(wrong)).not.toContain("topsecret");
  });
});

describe("a variable with the prefix LATCHKEY_", () => {
  it("exists for every setting, and is read as the one without it", () => {
    const values: Record<keyof typeof settings, string> = {
      HOST: "::1",
      HTTP_PORT: "81",
      GRPC_PORT: "82",
      METRICS_PORT: "83",
      METRICS_HOST: "0.0.0.0",
      TLS_CERT_FILE: "tls.crt",
      TLS_KEY_FILE: "tls.key",
      TLS_CLIENT_CA_FILE: "ca.crt",
      CORS_ORIGINS: "*",
      GRPC_KEEPALIVE_MS: "1000",
      GRPC_REFLECTION: "off",
      GRPC_MAX_CONNECTION_AGE_MS: "1000",
      MAX_CONNECTIONS: "10",
      SHUTDOWN_DELAY_MS: "1",
      WORKERS: "2",
      DATABASE_URL: "postgres://db/latchkey",
      REDIS_URL: "redis://cache",
      REDIS_CLUSTER: "true",
      DATA_DIR: "data",
      CACHE_MB: "8",
      OPERATOR_KEY: key("a"),
      OPERATOR_KEYS: `alice:${key("b")}`,
      RATE_LIMIT: "1",
      RATE_LIMIT_SECONDS: "1",
      QUOTA_KEYS: "1",
      QUOTA_IDENTITIES: "2",
      QUOTA_STORED_MB: "3",
      QUOTA_COUNTERS: "4",
      AUDIT_RETENTION_DAYS: "forever",
      DELETED_RETENTION_DAYS: "2",
      USAGE_RETENTION_DAYS: "3",
      IDEMPOTENCY_RETENTION_HOURS: "4",
      DOCS_BASE_URL: "https://docs.example.com",
      LOG_LEVEL: "warn",
      BUILD_COMMIT: "0123abc",
    };
    const prefixed = Object.fromEntries(Object.entries(values).map(([name, value]) => [`LATCHKEY_${name}`, value]));
    const unset = readConfig({});
    const read = readConfig(prefixed);
    expect(read).toEqual(readConfig(values));
    for (const name of Object.keys(read) as (keyof typeof read)[]) {
      if (name !== "searchPath") expect(read[name], name).not.toEqual(unset[name]);
    }
    expect(readClientConfig({ LATCHKEY_DATA_DIR: "data" }).dataDir).toBe(resolve("data"));
  });

  it("takes precedence, so that a variable of another program can stay set", () => {
    expect(readConfig({ LATCHKEY_HTTP_PORT: "81", HTTP_PORT: "82" })).toMatchObject({ httpPort: 81 });
    expect(readConfig({ LATCHKEY_HTTP_PORT: "81", HTTP_PORT: "nonsense" })).toMatchObject({ httpPort: 81 });
    expect(readConfig({ LATCHKEY_HTTP_PORT: "", HTTP_PORT: "82" })).toMatchObject({ httpPort: 82 });
  });

  it("is named in its problem, not the one without the prefix", () => {
    expect(errorFor({ LATCHKEY_HTTP_PORT: "x" })).toMatch(/^ {2}LATCHKEY_HTTP_PORT must be /m);
  });

  it("of a port that Kubernetes has set for a Service is refused with the remedy", () => {
    expect(errorFor({ LATCHKEY_HTTP_PORT: "tcp://10.0.0.1:80" })).toContain("set enableServiceLinks: false in the Pod");
  });
});

it.each(["my-machine", "my-machine.example.com", "two words"])(
  "HOST=%s, which a shell sets to the name of the machine, is not used",
  (HOST) => {
    expect(readConfig({ HOST })).toMatchObject({ host: "127.0.0.1", metricsHost: "127.0.0.1" });
    expect(readConfig({ HOST, LATCHKEY_HOST: "0.0.0.0" })).toMatchObject({ host: "0.0.0.0" });
  },
);

describe("DATABASE_URL without an operator key", () => {
  it("is refused with the reason and the remedy", () => {
    const message = errorFor({ DATABASE_URL: "postgres://db/latchkey", DATA_DIR: "/data" });
    expect(message).toContain("DATABASE_URL needs an OPERATOR_KEY, because each process would create another one");
    expect(message).toContain("OPERATOR_KEY_FILE=/data/operator.key");
  });

  it("is accepted by commands that need the database only", () => {
    expect(readDatabaseUrl({ DATABASE_URL: "postgres://db/latchkey", HTTP_PORT: "x" })).toBe("postgres://db/latchkey");
    expect(() => readDatabaseUrl({ DATABASE_URL: "x" })).toThrow("DATABASE_URL must be");
  });
});

describe("a secret from a file", () => {
  const folder = mkdtempSync(join(tmpdir(), "latchkey-config-"));
  afterAll(() => rmSync(folder, { recursive: true }));
  const secrets = { DATABASE_URL: "postgres://u:p@db/x", REDIS_URL: "redis://:p@cache", OPERATOR_KEY: key("a") };
  const values: Record<string, string> = { ...secrets, OPERATOR_KEYS: `alice:${key("b")}\nbob:${key("c")}` };

  function write(name: string, content: string): string {
    const file = join(folder, name);
    writeFileSync(file, content);
    return file;
  }

  it("is possible for every setting that is a secret, with a newline at its end", () => {
    const names = Object.entries(settings).filter(([, setting]) => "isSecret" in setting);
    expect(names.map(([name]) => name)).toEqual(["DATABASE_URL", "REDIS_URL", "OPERATOR_KEY", "OPERATOR_KEYS"]);
    for (const ending of ["", "\n", "\r\n"]) {
      const files = names.map(([name]) => [`${name}_FILE`, write(name, `${values[name]}${ending}`)]);
      expect(readConfig(Object.fromEntries(files))).toEqual(readConfig(values));
    }
  });

  it("has the prefix, too, and its variable takes precedence", () => {
    const file = write("key", key("a"));
    const { operators } = readConfig({ LATCHKEY_OPERATOR_KEY_FILE: file, OPERATOR_KEY: key("b") });
    expect(operators).toEqual([{ actor: "operator", key: key("a") }]);
  });

  it.each(["", "LATCHKEY_"])("is refused if the secret is also in a variable with the prefix '%s'", (prefix) => {
    const name = `${prefix}OPERATOR_KEY`;
    const message = errorFor({ [name]: key("a"), [`${name}_FILE`]: write("key", key("a")) });
    expect(message).toBe(`The configuration is invalid:\n  ${name} and ${name}_FILE are both set; unset one of them`);
  });

  it.each([
    [
      "is missing",
      () => join(folder, "none"),
      /^ {2}OPERATOR_KEY_FILE must be a readable file, and .*none is not \(ENOENT\)$/m,
    ],
    ["is a folder", () => folder, /OPERATOR_KEY_FILE must be a readable file, and .* is not \(EISDIR\)$/],
    ["is empty", () => write("empty", "\n"), /OPERATOR_KEY_FILE must be a file with the secret, and .*empty is empty$/],
  ])("that %s is refused, and variable and path are named", (_what, file, message) => {
    expect(errorFor({ OPERATOR_KEY_FILE: file() })).toMatch(message);
  });

  it.each(Object.keys(values))("that is invalid is refused without its content: %s", (name) => {
    const file = write("invalid", "top secret");
    const message = errorFor({ [`${name}_FILE`]: file });
    expect(message).toContain(`the content of ${file} (${name}_FILE) must be `);
    expect(message).not.toContain("top secret");
  });

  it("is not read for a setting that is no secret", () => {
    expect(readConfig({ HTTP_PORT_FILE: write("port", "81") })).toMatchObject({ httpPort: 8080 });
  });
});

it("an operator key that is named and unnamed is refused without the key", () => {
  const message = errorFor({ OPERATOR_KEY: key("a"), OPERATOR_KEYS: `alice:${key("a")}` });
  expect(message).toContain("OPERATOR_KEY and OPERATOR_KEYS contain the same key");
  expect(message).not.toContain(key("a"));
});
