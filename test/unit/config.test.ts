import { resolve } from "node:path";
import { describe, expect, it } from "vitest";
import { readConfig } from "../../src/config.js";
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

describe("the configuration", () => {
  const defaults = {
    host: "127.0.0.1",
    httpPort: 8080,
    grpcPort: 50051,
    metricsPort: undefined,
    tls: undefined,
    grpcKeepaliveMs: 60_000,
    grpcMaxConnectionAgeMs: undefined,
    grpcReflection: true,
    maxConnections: 10_000,
    shutdownDelayMs: 0,
    workers: 1,
    databaseUrl: undefined,
    redis: undefined,
    dataDir: resolve(".latchkey"),
    operatorKey: undefined,
    rateLimit: undefined,
    quotas: { keys: 1_000_000, identities: 1_000_000, bytes: 10 * 1024 ** 3 },
    auditRetentionDays: 90,
    cacheMb: 128,
    docsBaseUrl: undefined,
    logLevel: "info",
    searchPath: "",
  };

  it("has a default for everything", () => {
    expect(readConfig({})).toEqual(defaults);
  });

  it("treats an empty variable as unset", () => {
    const names = ["HOST", "HTTP_PORT", "GRPC_PORT", "DATABASE_URL", "REDIS_URL", "DATA_DIR"];
    const otherNames = [
      "OPERATOR_KEY",
      "DOCS_BASE_URL",
      "LOG_LEVEL",
      "REDIS_CLUSTER",
      "METRICS_PORT",
      "WORKERS",
      "CACHE_MB",
    ];
    const serverNames = [
      "TLS_CERT_FILE",
      "TLS_KEY_FILE",
      "TLS_CLIENT_CA_FILE",
      "SHUTDOWN_DELAY_MS",
      "GRPC_KEEPALIVE_MS",
    ];
    const all = [...names, ...otherNames, ...serverNames, "RATE_LIMIT", "RATE_LIMIT_SECONDS"];
    all.push("QUOTA_KEYS", "QUOTA_IDENTITIES", "QUOTA_STORED_MB", "AUDIT_RETENTION_DAYS");
    expect(readConfig(Object.fromEntries(all.map((name) => [name, ""])))).toEqual(defaults);
  });

  it.each([
    ["HOST", "0.0.0.0", { host: "0.0.0.0" }],
    ["HOST", "::1", { host: "::1" }],
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
    ["DATABASE_URL", "postgres://u:p@db:5432/latchkey", { databaseUrl: "postgres://u:p@db:5432/latchkey" }],
    ["DATABASE_URL", "postgresql://db/latchkey", { databaseUrl: "postgresql://db/latchkey" }],
    ["DATABASE_URL", "postgres://u:p@%2Frun%2Fpg/db", { databaseUrl: "postgres://u:p@%2Frun%2Fpg/db" }],
    ["REDIS_URL", "redis://cache:6379", { redis: { urls: ["redis://cache:6379"], cluster: false } }],
    ["REDIS_URL", "rediss://:p@cache/1", { redis: { urls: ["rediss://:p@cache/1"], cluster: false } }],
    ["REDIS_CLUSTER", "false", {}],
    ["DATA_DIR", "/var/lib/latchkey", { dataDir: "/var/lib/latchkey" }],
    ["DATA_DIR", "data", { dataDir: resolve("data") }],
    ["OPERATOR_KEY", "123456789012345678901234", { operatorKey: "123456789012345678901234" }],
    ["RATE_LIMIT", "1", { rateLimit: { requests: 1, windowSeconds: 60 } }],
    ["RATE_LIMIT", "1000000000", { rateLimit: { requests: 1_000_000_000, windowSeconds: 60 } }],
    ["QUOTA_KEYS", "1", { quotas: { keys: 1, identities: 1_000_000, bytes: 10 * 1024 ** 3 } }],
    ["QUOTA_IDENTITIES", "1000000000", { quotas: { keys: 1_000_000, identities: 1e9, bytes: 10 * 1024 ** 3 } }],
    ["QUOTA_STORED_MB", "1", { quotas: { keys: 1_000_000, identities: 1_000_000, bytes: 1024 ** 2 } }],
    ["AUDIT_RETENTION_DAYS", "1", { auditRetentionDays: 1 }],
    ["AUDIT_RETENTION_DAYS", "36500", { auditRetentionDays: 36_500 }],
    ["AUDIT_RETENTION_DAYS", "forever", { auditRetentionDays: "forever" }],
    ["CACHE_MB", "8", { cacheMb: 8 }],
    ["CACHE_MB", "2048", { cacheMb: 2048 }],
    ["DOCS_BASE_URL", "https://docs.example.com", { docsBaseUrl: "https://docs.example.com" }],
    ["DOCS_BASE_URL", "https://example.com/docs//", { docsBaseUrl: "https://example.com/docs" }],
    ["LOG_LEVEL", "silent", { logLevel: "silent" }],
    ["PATH", "/usr/bin:/bin", { searchPath: "/usr/bin:/bin" }],
  ])("reads %s=%s", (name, value, expected) => {
    expect(readConfig({ [name]: value })).toEqual({ ...defaults, ...expected });
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
    ["HOST", "two words"],
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
