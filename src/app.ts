import type { AddressInfo } from "node:net";
import { setTimeout as sleep } from "node:timers/promises";
import { create } from "@bufbuild/protobuf";
import { IdentitiesService } from "../gen/latchkey/v1/identities_service_pb.js";
import { KeysService } from "../gen/latchkey/v1/keys_service_pb.js";
import { CreateWorkspaceRequestSchema, WorkspacesService } from "../gen/latchkey/v1/workspaces_service_pb.js";
import { createAuditStore } from "./audit/store.js";
import { createAuthentication } from "./auth/authenticate.js";
import { UserError } from "./errors.js";
import { createGrpcPort } from "./grpc/server.js";
import { openMetricsServer } from "./http/metrics-server.js";
import { createHttpPort } from "./http/server.js";
import { createIdempotency } from "./idempotency/middleware.js";
import { createIdempotencyStore } from "./idempotency/store.js";
import { createIdentitiesService } from "./identities/service.js";
import { createIdentitiesStore } from "./identities/store.js";
import { mintId } from "./ids.js";
import { createLastUsed } from "./keys/last-used.js";
import { createKeysService } from "./keys/service.js";
import { createKeysStore } from "./keys/store.js";
import { addressOf, clientHost, listenError } from "./net/address.js";
import { type CertificateFiles, openCertificates } from "./net/certificates.js";
import { stopListening } from "./net/sockets.js";
import { createAccessLog } from "./observe/access-log.js";
import { createCallMetrics } from "./observe/call-metrics.js";
import type { Log } from "./observe/log.js";
import { createMetrics, type Metrics } from "./observe/metrics.js";
import { createTracing } from "./observe/tracing.js";
import { createLoadShedder, type LoadShedder } from "./overload/event-loop.js";
import { type Limits, standardLimits } from "./overload/limits.js";
import { createMemoryBudget } from "./overload/memory-budget.js";
import { createShedCounter } from "./overload/shed-counter.js";
import type { Quotas } from "./quotas/quotas.js";
import type { RateLimit } from "./rate-limit/counter.js";
import { createRequestCounter } from "./rate-limit/counter.js";
import { withRateLimit } from "./rate-limit/middleware.js";
import { createRetentionStore } from "./retention/store.js";
import { startSweep } from "./retention/sweep.js";
import { createChangeLog } from "./revocation/change-log.js";
import { createChangePoller, pollerSettings } from "./revocation/change-poller.js";
import { createChangesStore, type UnsafeSetting } from "./revocation/change-store.js";
import { systemClock } from "./revocation/clock.js";
import { createKeyCache } from "./revocation/key-cache.js";
import { createLease, recentSnapshot } from "./revocation/lease.js";
import { startLeaseRenewal } from "./revocation/lease-renewal.js";
import { createLeaseTimes, setLeaseTime } from "./revocation/lease-time.js";
import { createDurabilityBarrier } from "./revocation/make-durable.js";
import { createReadiness } from "./revocation/readiness.js";
import { withSpotChecks } from "./revocation/spot-checks.js";
import { createProcedures, service } from "./rpc/pipeline.js";
import { connectPostgres, poolSettings } from "./storage/postgres/connection.js";
import { openDatabase } from "./storage/postgres/database.js";
import { classifyError } from "./storage/postgres/errors.js";
import { migrate } from "./storage/postgres/migrate.js";
import { createOutageLog } from "./storage/postgres/outage-log.js";
import type { RedisAddress } from "./storage/redis/client.js";
import { connectRedis, noCache } from "./storage/redis/client.js";
import { createWorkspacesService } from "./workspaces/service.js";
import { createWorkspacesStore } from "./workspaces/store.js";

/** What the application is made from: the configuration, with every gap filled. */
export interface AppOptions {
  readonly host: string;
  readonly httpPort: number;
  readonly grpcPort: number;
  readonly metricsPort: number | undefined;
  /** Undefined: the ports are not encrypted. */
  readonly tls: CertificateFiles | undefined;
  /** After how long a gRPC connection is asked whether its client is still there. */
  readonly grpcKeepaliveMs: number;
  /** After how long a gRPC client is asked to connect anew; undefined: never. */
  readonly grpcMaxConnectionAgeMs: number | undefined;
  /** Whether the gRPC port offers server reflection. */
  readonly grpcReflection: boolean;
  /** How many connections each port takes. */
  readonly maxConnections: number;
  /** For how long, at a stop, the ports stay open once it is told that the service is not ready any more. */
  readonly shutdownDelayMs: number;
  /** For how long, at a stop, connections that are open are served on. */
  readonly lingerMs?: number;
  readonly databaseUrl: string;
  /** Undefined: there is none, and what is not held is read from Postgres. */
  readonly redis: RedisAddress | undefined;
  /** How long a command to Redis may take, where it is not the standard. */
  readonly redisLimitMs?: number;
  readonly operatorKey: string;
  /** How many requests a workspace may make; undefined: as many as it likes. */
  readonly rateLimit: RateLimit | undefined;
  /** How much one workspace may store. */
  readonly quotas: Quotas;
  /** For how many days audit events are kept. */
  readonly auditRetentionDays: number | "forever";
  /** How often old rows are removed, where it is not the standard. */
  readonly sweepEveryMs?: number;
  /** How much of keys and workspaces is held in this process, in MiB. */
  readonly cacheMb: number;
  readonly docsBaseUrl: string | undefined;
  readonly log: Log;
  /** Which calls are served; left out, those that the event loop has time for. */
  readonly guard?: LoadShedder;
  /** What one client may do, where it is not the standard. */
  readonly limits?: Partial<Limits>;
}

/** A running service. */
export interface App {
  readonly httpUrl: string;
  readonly grpcAddress: string;
  /** Undefined: metrics are not served. */
  readonly metricsUrl: string | undefined;
  /** Creates a workspace without going through a protocol, unless there is one already. */
  createFirstWorkspace(name: string): Promise<{ workspaceId: string; key: string } | undefined>;
  /** What is measured, whether it is served or not. */
  metrics(): Promise<Metrics>;
  /** Is not ready any more, then accepts no more connections. On those that are open it still serves. */
  stopAccepting(): Promise<void>;
  /** Stops accepting, lets running calls finish, then lets go of the backends. */
  close(): Promise<void>;
}

/** How long running calls may take to finish once the service closes. */
const drainMs = 10_000;

/** How often old rows are removed. */
const sweepEveryMs = 60_000;

/** Within this time a client asks again that is in the middle of its work, even if it is far away or short of breath. */
const lingerMs = 2_000;

/** Connects everything: backends, stores, services, protocols. Resolves when both ports are open. */
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
    const db = openDatabase(options.databaseUrl, poolSettings, {
      ...createOutageLog(log),
      shed: () => shedding.count("database"),
    });
    undo.push(() => db.close());
    await migrate(db).catch(cannotMigrate);
    const redis = options.redis && connectRedis(options.redis, log, options.redisLimitMs);
    const cache = redis ?? noCache;
    undo.push(() => cache.close());

    const keys = createKeysStore(db, options.quotas);
    const identities = createIdentitiesStore(db, options.quotas);
    const workspaces = createWorkspacesStore(db);

    const changesStore = createChangesStore(db);
    await changesStore.removeForeignStamps();
    const { snapshot, leaseMs, history, unsafeSetting } = await changesStore.readTerms();
    if (unsafeSetting !== null) refuseSetting(unsafeSetting);
    // The recent past is learnt first, so that what other replicas left in Redis can be used from the start.
    const changes = createChangeLog(recentSnapshot(snapshot), history);
    const pollerDatabase = openDatabase(options.databaseUrl, pollerSettings);
    undo.push(() => pollerDatabase.close());
    const heartbeat = createChangePoller(pollerDatabase, db, history);
    const lease = createLease(heartbeat, changes, leaseMs, systemClock);
    const sources = { ...keys, ...workspaces, makeDurable: createDurabilityBarrier(db) };
    const found = createKeyCache(lease, changes, cache, sources, options.cacheMb * 1024 * 1024);
    const holdings = withSpotChecks(found, changes, keys.readUsable, log);

    const lastUsed = createLastUsed(keys.recordUses, log);
    undo.push(() => lastUsed.close());

    const { rateLimit } = options;
    const authentication = createAuthentication(options.operatorKey, holdings, lastUsed, lease.databaseTime);
    // Without a limit there is nothing in between: a key that is held is accepted at once.
    const authenticate = rateLimit
      ? withRateLimit(authentication.authenticate, rateLimit, createRequestCounter(rateLimit, redis), log)
      : authentication.authenticate;
    const workspacesService = createWorkspacesService(workspaces, holdings, createAuditStore(db));
    const procedures = createProcedures(
      [
        service(KeysService, createKeysService(keys, holdings, lastUsed, lease.databaseTime)),
        service(IdentitiesService, createIdentitiesService(identities, holdings)),
        service(WorkspacesService, workspacesService),
      ],
      { ...authentication, authenticate },
      createIdempotency(createIdempotencyStore(db), holdings),
      tracing,
    );

    const tally = createCallMetrics(procedures.map(({ path }) => path));
    const logAnswered = createAccessLog(log, tally);
    const logCall = tracing?.endSpans(logAnswered) ?? logAnswered;
    let httpUrl = "";
    let grpcPort = 0;
    const docsBase = () => options.docsBaseUrl ?? httpUrl;
    const readiness = createReadiness(lease, options.redis && cache);
    const drain = { lingerMs: options.lingerMs ?? lingerMs, drainMs };
    const { maxConnections, guard = createLoadShedder() } = options;
    const limits = { ...standardLimits, ...options.limits };
    const memory = createMemoryBudget(limits, shedding);
    const overload = { guard, shedding, maxConnections, limits, memory };
    const protocols = { procedures, readiness: readiness.read, certificates, ...drain, ...overload, logCall };
    const gateway = await createHttpPort({ ...protocols, docsBase, grpcPort: () => grpcPort });
    const grpc = createGrpcPort({
      ...protocols,
      keepaliveMs: options.grpcKeepaliveMs,
      maxConnectionAgeMs: options.grpcMaxConnectionAgeMs,
      reflection: options.grpcReflection,
    });
    // Last of all that is prepared: while this process is busy starting, it could not tell a slow answer from none.
    const keeper = startLeaseRenewal(lease, holdings.confirm, log);
    undo.push(() => keeper.stop());
    const sweep = startSweep(createRetentionStore(db), {
      auditDays: options.auditRetentionDays,
      everyMs: options.sweepEveryMs ?? sweepEveryMs,
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

    const registry = createMetrics({
      calls: tally.read,
      leaseMsLeft: lease.remaining,
      knownTransactions: () => changes.present.xmax,
      redisInUse: () => cache.inUse,
      lookups: holdings.lookups,
      renewals: keeper.renewals,
      checks: holdings.checks,
      pool: db.usage,
      memoryReserved: () => memory.reserved,
      shed: shedding.counts,
    });
    const metrics = async () => registry;
    const { metricsPort } = options;
    const metricsServer =
      metricsPort === undefined ? undefined : await openMetricsServer(metrics, host, metricsPort, log, limits);
    undo.push(() => metricsServer?.close());
    let stopping: Promise<void> | undefined;
    const stopAccepting = async () => {
      readiness.end();
      grpc.announceEnd();
      await sleep(options.shutdownDelayMs);
      void stopListening(gateway.server);
      grpc.stopListening();
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
              caller: { kind: "operator" },
              call,
            });
      },
      metrics,
      stopAccepting: () => (stopping ??= stopAccepting()),
      close,
    };
  } catch (error) {
    await close();
    throw error;
  }
}

/** Brings the schema up to date and ends, for those who do that apart from the start. */
export async function migrateDatabase(databaseUrl: string | undefined): Promise<void> {
  if (databaseUrl === undefined) {
    throw new UserError(
      "There is nothing to migrate: set DATABASE_URL. The embedded database migrates when it starts.",
    );
  }
  const sql = connectPostgres(databaseUrl);
  await migrate(sql)
    .catch(cannotMigrate)
    .finally(() => sql.end({ timeout: 5 }));
}

/** Changes the lease time of the replicas on a database while they run; resolves when it is changed. */
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
    "Somebody else has changed the lease time meanwhile. Run this command again: until then, changes may take longer than the lease.",
  );
}

function cannotChangeLease(cause: Error): never {
  if (classifyError(cause) === undefined) throw cause;
  const sentence = `PostgreSQL has not confirmed the lease time: ${cause.message}. Run this command again: until then, changes may take longer than the lease.`;
  throw new UserError(sentence, { cause });
}

function cannotMigrate(cause: Error): never {
  if (classifyError(cause) === undefined) throw cause;
  const sentence = `Cannot use PostgreSQL: ${cause.message}. Check DATABASE_URL, and that the database runs.`;
  throw new UserError(sentence, { cause });
}

/** What to set instead of what was found. */
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
