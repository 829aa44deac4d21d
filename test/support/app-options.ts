import type { AppOptions } from "../../src/app.js";

/**
 * Options of an application on free ports, with nothing enabled that a test does not ask for. It stops without delay.
 */
export const appOptions: Omit<AppOptions, "databaseUrl" | "redis" | "operators" | "log"> = {
  host: "127.0.0.1",
  httpPort: 0,
  grpcPort: 0,
  metricsHost: "127.0.0.1",
  metricsPort: undefined,
  tls: undefined,
  corsOrigins: [],
  grpcKeepaliveMs: 60_000,
  grpcMaxConnectionAgeMs: undefined,
  grpcReflection: true,
  maxConnections: 10_000,
  shutdownDelayMs: 0,
  lingerMs: 0,
  rateLimit: undefined,
  quotas: { keys: 1_000_000, identities: 1_000_000, bytes: 10 * 1024 ** 3 },
  maxCounters: 250_000,
  auditRetentionDays: "forever",
  deletedRetentionDays: 1,
  usageRetentionDays: 90,
  idempotencyRetentionHours: 24,
  cacheMb: 64,
  docsBaseUrl: undefined,
  buildCommit: undefined,
};

/** A single Redis server. */
export const redisAt = (url: string) => ({ urls: [url], cluster: false });
