import type { AddressInfo } from "node:net";
import { setTimeout as sleep } from "node:timers/promises";
import { create } from "@bufbuild/protobuf";
import { ApisService } from "../gen/latchkey/v1/apis_service_pb.js";
import { IdentitiesService } from "../gen/latchkey/v1/identities_service_pb.js";
import { KeysService } from "../gen/latchkey/v1/keys_service_pb.js";
import { PermissionsService } from "../gen/latchkey/v1/permissions_service_pb.js";
import { RateLimitsService } from "../gen/latchkey/v1/rate_limits_service_pb.js";
import { VerifierService } from "../gen/latchkey/v1/verifier_service_pb.js";
import { CreateWorkspaceRequestSchema, WorkspacesService } from "../gen/latchkey/v1/workspaces_service_pb.js";
import { createApisService } from "./apis/service.js";
import { createApisStore } from "./apis/store.js";
import { createAuditStore } from "./audit/store.js";
import { createAuthentication } from "./auth/authenticate.js";
import { type OperatorCredential, unnamedOperator } from "./call/operators.js";
import { createCreditSpender, spenderPool } from "./credits/spender.js";
import { createCreditsStore } from "./credits/store.js";
import { createDelegation } from "./delegation/delegation.js";
import { UserError } from "./errors.js";
import { createGrpcPort } from "./grpc/server.js";
import { stopListening } from "./http/drain.js";
import { openMetricsServer } from "./http/metrics-server.js";
import { type DocsBase, originOf } from "./http/origin.js";
import { createHttpPort } from "./http/server.js";
import { createIdempotency } from "./idempotency/middleware.js";
import { createIdempotencyStore } from "./idempotency/store.js";
import { createIdentitiesService } from "./identities/service.js";
import { createIdentitiesStore } from "./identities/store.js";
import { mintId } from "./ids.js";
import { createKeyCreditsService } from "./keys/credits-service.js";
import { createKeyCreditsStore } from "./keys/credits-store.js";
import { createImportStore } from "./keys/import-store.js";
import { createLastUsed } from "./keys/last-used.js";
import { createKeysService } from "./keys/service.js";
import { createKeysStore } from "./keys/store.js";
import { createVerification } from "./keys/verification.js";
import { createCounters } from "./limiter/counters.js";
import { createOverrides } from "./limiter/overrides.js";
import { createOverridesStore } from "./limiter/overrides-store.js";
import { createRateLimitsService } from "./limiter/service.js";
import { addressOf, clientHost, listenError } from "./net/address.js";
import { type CertificateFiles, openCertificates } from "./net/certificates.js";
import { createAccessLog } from "./observe/access-log.js";
import { createCallMetrics } from "./observe/call-metrics.js";
import type { ServiceLog } from "./observe/log.js";
import { createMetrics, type Metrics } from "./observe/metrics.js";
import { createTracing } from "./observe/tracing.js";
import { version } from "./observe/version.js";
import { createLoadShedder, type LoadShedder } from "./overload/event-loop.js";
import { defaultLimits, type Limits } from "./overload/limits.js";
import { createMemoryBudget } from "./overload/memory-budget.js";
import { createShedCounter } from "./overload/shed-counter.js";
import { alwaysServed } from "./overload/shed-response.js";
import { createRoleStore } from "./permissions/role-store.js";
import { createPermissionsService } from "./permissions/service.js";
import { createPermissionsStore } from "./permissions/store.js";
import type { Quotas } from "./quotas/quotas.js";
import type { RateLimit } from "./rate-limit/counter.js";
import { createRequestCounter } from "./rate-limit/counter.js";
import { withRateLimit } from "./rate-limit/middleware.js";
import { createErasure } from "./retention/erasure.js";
import { createRetentionStore } from "./retention/store.js";
import { startSweep } from "./retention/sweep.js";
import { createChangeLog } from "./revocation/change-log.js";
import { createChangePoller, pollerSettings } from "./revocation/change-poller.js";
import { createChangeStore, type UnsafeSetting } from "./revocation/change-store.js";
import { systemClock } from "./revocation/clock.js";
import { createDurabilityBarrier } from "./revocation/durability-barrier.js";
import { createKeyCache } from "./revocation/key-cache.js";
import { createLease, recentSnapshot } from "./revocation/lease.js";
import { startLeaseRenewal } from "./revocation/lease-renewal.js";
import { createLeaseTimes, setLeaseTime } from "./revocation/lease-time.js";
import { createLookupLimit } from "./revocation/lookup-limit.js";
import { createReadiness } from "./revocation/readiness.js";
import { withSpotChecks } from "./revocation/spot-checks.js";
import { createProcedures, createStreamProcedure, service } from "./rpc/pipeline.js";
import { connectPostgres, poolSettings } from "./storage/postgres/connection.js";
import { openDatabase } from "./storage/postgres/database.js";
import { observeOutages } from "./storage/postgres/database-outage.js";
import { classifyError, isAccessDenied } from "./storage/postgres/errors.js";
import { migrate } from "./storage/postgres/migrate.js";
import type { RedisAddress } from "./storage/redis/client.js";
import { connectRedis, noCache } from "./storage/redis/client.js";
import { createVerificationCounter } from "./usage/counter.js";
import { createUsageStore } from "./usage/store.js";
import { createWorkspacesService } from "./workspaces/service.js";
import { createWorkspacesStore } from "./workspaces/store.js";

/** The configuration with every default filled in. */
export interface AppOptions {
  readonly host: string;
  readonly httpPort: number;
  readonly grpcPort: number;
  readonly metricsHost: string;
  readonly metricsPort: number | undefined;
  /** Undefined: the ports are not encrypted. */
  readonly tls: CertificateFiles | undefined;
  /** The origins whose pages may call the HTTP port; `*` for all. Empty: none. */
  readonly corsOrigins: readonly string[];
  /** The interval of HTTP/2 keepalive pings on gRPC connections. */
  readonly grpcKeepaliveMs: number;
  /** The maximum age of a gRPC connection. Undefined: no maximum. */
  readonly grpcMaxConnectionAgeMs: number | undefined;
  /** Whether the gRPC port offers server reflection. */
  readonly grpcReflection: boolean;
  /** How many connections each port accepts. */
  readonly maxConnections: number;
  /** How long the ports stay open during shutdown, after readiness has ended. */
  readonly shutdownDelayMs: number;
  /** How long idle connections stay open during shutdown. */
  readonly lingerMs?: number;
  readonly databaseUrl: string;
  /** The timeout of a poll for changes, if not the default. */
  readonly pollTimeoutMs?: number;
  /** Undefined: no Redis; a cache miss in memory is read from PostgreSQL. */
  readonly redis: RedisAddress | undefined;
  /** The timeout of a Redis command, if not the default. */
  readonly redisTimeoutMs?: number;
  /** The credentials that authenticate operators. */
  readonly operators: readonly OperatorCredential[];
  /** The rate limit of each workspace. Undefined: none. */
  readonly rateLimit: RateLimit | undefined;
  /** How much one workspace may store. */
  readonly quotas: Quotas;
  /** How many counters of rate limits one process keeps in Redis for one workspace. */
  readonly maxCounters: number;
  /** For how many days audit events are kept. */
  readonly auditRetentionDays: number | "forever";
  /** For how many days the rows of deleted keys, identities, roles and APIs are kept. */
  readonly deletedRetentionDays: number | "forever";
  /** For how many days the counts of verifications are kept. */
  readonly usageRetentionDays: number | "forever";
  /** For how many hours a retry with the same idempotency key gets the first response. */
  readonly idempotencyRetentionHours: number;
  /** The interval of retention sweeps, if not the default. */
  readonly sweepIntervalMs?: number;
  /** The size of the key cache in process memory, in MiB. */
  readonly cacheMb: number;
  /** The base of error type URLs. Undefined: the address that the client has used. */
  readonly docsBaseUrl: string | undefined;
  /** The commit of this build, if it is known. */
  readonly buildCommit: string | undefined;
  readonly log: ServiceLog;
  /** Decides which calls are served. Default: those that the event loop has time for. */
  readonly guard?: LoadShedder;
  /** The limits of one client, if not the defaults. */
  readonly limits?: Partial<Limits>;
}

/** A running service. */
export interface App {
  readonly httpUrl: string;
  readonly grpcAddress: string;
  /** Undefined: metrics are not served. */
  readonly metricsUrl: string | undefined;
  /** Creates a workspace in this process, unless one exists. */
  createFirstWorkspace(name: string): Promise<{ workspaceId: string; key: string } | undefined>;
  /** The metrics, whether a port serves them or not. */
  metrics(): Promise<Metrics>;
  /** The state of the service. Rejects if the service cannot verify keys, or if it is shutting down. */
  readiness(): Promise<Readonly<Record<string, string>>>;
  /** Ends readiness, then stops accepting connections. Open connections are still served. */
  stopAccepting(): Promise<void>;
  /** Stops accepting, lets calls in flight finish, then closes the connections to the backends. */
  close(): Promise<void>;
}

/** How long calls in flight may take to finish during shutdown. */
const drainMs = 10_000;

/** The default interval of retention sweeps. */
const sweepIntervalMs = 60_000;

/** How long idle connections stay open during shutdown: a slow or distant client can send its next request. */
const lingerMs = 2_000;

/** The share of the key cache that overrides of rate limits may take in addition. */
const overridesShare = 1 / 16;

/** Opens backends, stores, services and ports. Resolves when both ports accept connections. */
export async function openApp(options: AppOptions): Promise<App> {
  const { host, log } = options;
  const undo: (() => unknown)[] = [];
  const close = async () => {
    for (const step of undo.splice(0).reverse()) await step();
  };

  try {
    const certificates = options.tls && (await openCertificates(options.tls, log));
    undo.push(() => certificates?.close());
    const tracing = createTracing();
    undo.push(() => tracing?.flush());
    const shedding = createShedCounter(log);
    const observer = { ...observeOutages(log), shed: () => shedding.count("database") };
    const db = openDatabase(options.databaseUrl, poolSettings, observer);
    undo.push(() => db.close());
    const { unknown } = await migrate(db).catch(cannotMigrate);
    if (unknown.length > 0) log.warn({ migrations: unknown }, "the schema of the database is newer than this version");
    const redis = options.redis && connectRedis(options.redis, log, options.redisTimeoutMs);
    const cache = redis ?? noCache;
    undo.push(() => cache.close());

    const keys = createKeysStore(db, options.quotas);
    const imports = createImportStore(db, options.quotas);
    const identities = createIdentitiesStore(db, options.quotas);
    const apis = createApisStore(db, options.quotas);
    const permissions = createPermissionsStore(db, options.quotas);
    const roles = createRoleStore(db, options.quotas, permissions);
    const workspaces = createWorkspacesStore(db);
    const usage = createUsageStore(db);
    const overridesStore = createOverridesStore(db, options.quotas);

    const changeStore = createChangeStore(db);
    if (await changeStore.isSubscribed()) refuseSubscription();
    await changeStore.removeForeignStamps();
    const { snapshot, leaseMs, timeline, unsafeSetting } = await changeStore.readTerms();
    if (unsafeSetting !== null) refuseSetting(unsafeSetting);
    // Starts with the recent past, so that entries of other replicas in Redis are usable from the start.
    const changeLog = createChangeLog(recentSnapshot(snapshot), timeline);
    const pollerDatabase = openDatabase(options.databaseUrl, pollerSettings(options.pollTimeoutMs));
    undo.push(() => pollerDatabase.close());
    const spenderDatabase = openDatabase(options.databaseUrl, spenderPool, observer);
    undo.push(() => spenderDatabase.close());
    const poller = createChangePoller(pollerDatabase, [db, spenderDatabase], timeline, options.pollTimeoutMs);
    const lease = createLease(poller, changeLog, leaseMs, systemClock, (changes) => delegation.invalidate(changes));
    const sources = { ...keys, ...workspaces, makeDurable: createDurabilityBarrier(db) };
    const cacheBytes = options.cacheMb * 1024 * 1024;
    const tieredKeyCache = createKeyCache(lease, changeLog, cache, sources, cacheBytes);
    const keyCache = withSpotChecks(tieredKeyCache, changeLog, keys.readUsable, log);

    const lookups = createLookupLimit();
    const overridesBytes = cacheBytes * overridesShare;
    const overrides = createOverrides(lease, changeLog, overridesStore.readOverrides, lookups, overridesBytes);
    const counters = createCounters(redis, options.maxCounters, log);

    const lastUsed = createLastUsed(keys.recordUses, log);
    const counter = createVerificationCounter(usage.addCounts, log);
    undo.push(() => Promise.all([lastUsed.close(), counter.close()]));
    const delegation = createDelegation(lease, keyCache, lastUsed, counter, lookups);

    const { rateLimit } = options;
    const authentication = createAuthentication(options.operators, keyCache, lastUsed, lease.databaseTime);
    // Without a limit, nothing is in between: a cached key is accepted synchronously.
    const authenticate = rateLimit
      ? withRateLimit(authentication.authenticate, rateLimit, createRequestCounter(rateLimit, redis), log)
      : authentication.authenticate;
    const now = lease.databaseTime;
    const creditsStore = createCreditsStore(spenderDatabase, lease.databaseDeadline);
    const credits = createCreditSpender(creditsStore, () => shedding.count("database"));
    const verifyKey = createVerification({ keyCache, lastUsed, counters, credits, usage: counter, now });
    const workspacesService = createWorkspacesService(workspaces, keyCache, createAuditStore(db));
    const procedures = createProcedures(
      [
        service(KeysService, {
          ...createKeysService({ store: keys, imports, catalogue: permissions, roles, keyCache, verifyKey, usage }),
          ...createKeyCreditsService(keys, createKeyCreditsStore(db, options.quotas), keyCache),
        }),
        service(IdentitiesService, createIdentitiesService(identities, keyCache, usage)),
        service(ApisService, createApisService(apis, keyCache)),
        service(PermissionsService, createPermissionsService(permissions, roles, keyCache)),
        service(RateLimitsService, createRateLimitsService(overridesStore, overrides, counters, keyCache)),
        service(WorkspacesService, workspacesService),
      ],
      { ...authentication, authenticate },
      createIdempotency(createIdempotencyStore(db), keyCache, options.idempotencyRetentionHours),
      tracing,
    );
    const { delegate } = VerifierService.method;
    const streams = [createStreamProcedure(delegate, delegation.serve, { ...authentication, authenticate }, tracing)];

    const callMetrics = createCallMetrics([...procedures, ...streams].map(({ path }) => path));
    const accessLog = createAccessLog(log, callMetrics, alwaysServed.http);
    const logCall = tracing?.endSpans(accessLog) ?? accessLog;
    let httpUrl = "";
    let grpcPort = 0;
    const { docsBaseUrl } = options;
    const docsBase: DocsBase = (request) => docsBaseUrl ?? (request && originOf(request)) ?? httpUrl;
    const readiness = createReadiness(lease, options.redis && cache);
    const drain = { lingerMs: options.lingerMs ?? lingerMs, drainMs, log };
    const { maxConnections, guard = createLoadShedder() } = options;
    const limits = { ...defaultLimits, ...options.limits };
    const memory = createMemoryBudget(limits, shedding);
    const overload = { guard, shedding, maxConnections, limits, memory };
    const protocols = { procedures, readiness: readiness.read, certificates, ...drain, ...overload, logCall };
    const gateway = await createHttpPort({
      ...protocols,
      docsBase,
      corsOrigins: options.corsOrigins,
      grpcPort: () => grpcPort,
    });
    const grpc = createGrpcPort({
      ...protocols,
      streams,
      keepaliveMs: options.grpcKeepaliveMs,
      maxConnectionAgeMs: options.grpcMaxConnectionAgeMs,
      reflection: options.grpcReflection,
    });
    // The last step of preparation: a process that is busy starting could not tell a slow response from none.
    const onRenewed = () => {
      keyCache.confirm();
      overrides.confirm();
      delegation.renewed();
    };
    const renewal = startLeaseRenewal(lease, onRenewed, log);
    undo.push(() => renewal.stop());
    const sweep = startSweep(createRetentionStore(db), createErasure(db), {
      auditDays: options.auditRetentionDays,
      deletedDays: options.deletedRetentionDays,
      usageDays: options.usageRetentionDays,
      everyMs: options.sweepIntervalMs ?? sweepIntervalMs,
      log,
    });
    undo.push(() => sweep.stop());
    undo.push(() => Promise.all([gateway.close(), grpc.close()]));

    const address = await addressOf(host).catch(listenError("HTTP_PORT", host, options.httpPort));
    await gateway
      .listen({ host: address, port: options.httpPort })
      .catch(listenError("HTTP_PORT", host, options.httpPort));
    httpUrl = `${certificates ? "https" : "http"}://${clientHost(host)}:${(gateway.server.address() as AddressInfo).port}`;
    grpcPort = await grpc.listen(address, options.grpcPort).catch(listenError("GRPC_PORT", host, options.grpcPort));

    const readMetrics = createMetrics({
      calls: callMetrics.read,
      leaseMsLeft: lease.remaining,
      knownTransactions: () => changeLog.present.xmax,
      redisInUse: () => cache.inUse,
      lookups: { ...keyCache.lookups, overrides: overrides.lookups },
      rateLimitChecks: counters.checks,
      renewals: renewal.renewals,
      checks: keyCache.checks,
      pool: db.usage,
      memoryReserved: () => memory.reserved,
      shed: shedding.counts,
      verifiers: delegation,
      build: { version, node_version: process.version, commit: options.buildCommit ?? "unknown" },
    });
    const metrics = async () => readMetrics();
    const { metricsHost, metricsPort } = options;
    const metricsSources = { metrics, readiness: readiness.read };
    const metricsServer =
      metricsPort === undefined
        ? undefined
        : await openMetricsServer(metricsSources, metricsHost, metricsPort, log, limits);
    undo.push(() => metricsServer?.close());
    let stopping: Promise<void> | undefined;
    const stopAccepting = async () => {
      readiness.end();
      grpc.announceShutdown();
      await sleep(options.shutdownDelayMs);
      void stopListening(gateway.server);
      grpc.stopListening();
      delegation.end();
    };
    undo.push(() => (stopping ??= stopAccepting()));

    return {
      httpUrl,
      grpcAddress: `${clientHost(host)}:${grpcPort}`,
      metricsUrl: metricsServer?.url,
      async createFirstWorkspace(name) {
        const call = { requestId: mintId("req"), deadline: Number.POSITIVE_INFINITY };
        const there = await workspaces.listWorkspaces(call, { limit: 0, after: "" });
        return there.length > 0
          ? undefined
          : workspacesService.createWorkspace(create(CreateWorkspaceRequestSchema, { name }), {
              caller: { kind: "operator", actor: unnamedOperator },
              call,
            });
      },
      metrics,
      readiness: readiness.read,
      stopAccepting: () => (stopping ??= stopAccepting()),
      close,
    };
  } catch (error) {
    await close();
    throw error;
  }
}

/** Migrates the schema, for deployments that do so before the start. Resolves to a sentence about what it has done. */
export async function migrateDatabase(databaseUrl: string | undefined): Promise<string> {
  if (databaseUrl === undefined) {
    throw new UserError("There is nothing to migrate: set DATABASE_URL. The embedded database migrates at start-up.");
  }
  const sql = connectPostgres(databaseUrl);
  const { applied, unknown } = await migrate(sql)
    .catch(cannotMigrate)
    .finally(() => sql.end({ timeout: 5 }));
  if (applied.length > 0) return `Applied ${applied.join(", ")}.`;
  if (unknown.length > 0)
    return `Nothing to migrate: the schema is newer than this version. It has ${unknown.join(", ")}.`;
  return "Nothing to migrate: the schema is current.";
}

/** Changes the lease time of running replicas. Resolves when the change is complete. */
export async function changeLeaseTime(databaseUrl: string | undefined, ms: number): Promise<void> {
  if (databaseUrl === undefined) {
    throw new UserError("There is no lease time to change: set DATABASE_URL to the database of the replicas.");
  }
  const db = openDatabase(databaseUrl, { connections: 1, statementMs: poolSettings.statementMs });
  const changed = await setLeaseTime(createLeaseTimes(db), ms, systemClock)
    .catch(cannotChangeLease)
    .finally(() => db.close());
  if (changed) return;
  throw new UserError(
    "The lease time was changed concurrently. Run this command again: until then, changes may take longer than the lease.",
  );
}

function cannotChangeLease(cause: Error): never {
  if (classifyError(cause) === undefined) throw cause;
  const sentence = `PostgreSQL has not confirmed the lease time: ${cause.message}. Run this command again: until then, changes may take longer than the lease.`;
  throw new UserError(sentence, { cause });
}

function cannotMigrate(cause: Error): never {
  if (classifyError(cause) === undefined) throw cause;
  const remedy = isAccessDenied(cause)
    ? "Grant the role of DATABASE_URL the rights in docs/operations/database-roles.md"
    : "Check DATABASE_URL, and that the database runs";
  throw new UserError(`Cannot use PostgreSQL: ${cause.message}. ${remedy}.`, { cause });
}

function refuseSubscription(): never {
  throw new UserError(
    "The database of DATABASE_URL receives the changes of another server by logical replication. Drop its subscription first, when it has received everything: see docs/operations/upgrade.md#logical-replication. Until then, revoked keys could be accepted.",
  );
}

/** The setting to use instead of an unsafe one. */
const safeSettings: Readonly<Record<UnsafeSetting, string>> = {
  "synchronous_commit = off": "synchronous_commit = on",
  "client_min_messages = error": "client_min_messages = notice",
};

function refuseSetting(found: UnsafeSetting): never {
  const safe = safeSettings[found];
  throw new UserError(
    `PostgreSQL runs with ${found}, so changes could be lost after they were acknowledged. Set ${safe} where it was set: \`alter role … set ${safe}\`, \`alter database … set ${safe}\`, or postgresql.conf.`,
  );
}
