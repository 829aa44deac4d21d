import { setTimeout as sleep } from "node:timers/promises";
import type postgres from "postgres";
import type { BackendProxy } from "../../support/proxy.js";
import type { Cluster } from "./cluster.js";
import type { PoolExhauster } from "./occupant.js";
import type { Random } from "./random.js";
import type { RedisService } from "./redis-service.js";
import type { OtherClock, Replica } from "./replica.js";
import { openSession } from "./session.js";
import type { VerifierProcess } from "./verifier-process.js";

/** The processes and helpers that faults act on. */
export interface FaultContext {
  readonly replicas: readonly Replica[];
  readonly verifiers: readonly VerifierProcess[];
  readonly redis: RedisService;
  readonly cluster: Cluster;
  readonly poolExhauster: PoolExhauster;
  readonly databaseUrl: string;
  /** Makes every process of a replica query Postgres. Resolves to whether all of them got a response. */
  readonly roundTrip: (replica: Replica) => Promise<boolean>;
  /** Records how long after a suspend the calls of the replica were checked as if begun before it. */
  readonly recordBound: (boundMs: number) => void;
  /** Reads all recently changed subjects, and compares each with the acknowledged changes. */
  readonly audit: () => Promise<unknown>;
  readonly random: Random;
}

/** One kind of fault. */
export interface FaultKind {
  readonly name: string;
  /** Two faults on the same resource are never active together. */
  readonly resource: Resource;
  /** The replicas that it applies to. Omitted: all. */
  readonly appliesTo?: (replica: Replica) => boolean;
  /** Minimum and maximum duration. */
  readonly durationMs: readonly [number, number];
  /** Injects the fault, on this replica if it concerns a single one, and returns how to heal it. */
  start(context: FaultContext, replica: Replica): Promise<Heal> | Heal;
}

export type Resource =
  | "redis"
  | "redis link of one"
  | "redis links of all"
  | "postgres link of one"
  | "postgres links of all"
  | "sessions of postgres"
  | "postgres"
  | "connections of one"
  | "process of one"
  | "process of one, and its database"
  | "verifier"
  | "nothing";

export type Heal = () => Promise<void> | void;

/** All kinds of faults. */
export const faultKinds: readonly FaultKind[] = [
  onLink("redis", "cut", (link) => link.cut()),
  onLink("redis", "stalled", (link) => link.stall()),
  onLink("redis", "delayed", (link, random) => link.delay(random.between(30, 200))),
  onLinks("redis", "cut", [300, 2_500], (link) => link.cut()),
  onLinks("redis", "stalled", [300, 2_500], (link) => link.stall()),
  onLinks("redis", "delayed", [300, 2_500], (link, random) => link.delay(random.between(30, 200))),
  onRedis("redis frozen", [300, 2_500], ({ redis }) => {
    redis.freeze();
    return redis.thaw;
  }),
  onRedis("redis emptied", [300, 600], async ({ redis }) => {
    await redis.empty();
    return nothing;
  }),
  onRedis("redis restarted empty", [300, 800], async ({ redis }) => {
    await redis.restart();
    return nothing;
  }),
  onRedis("redis failed over to a stale copy", [500, 1_500], async ({ redis, random }) => {
    await redis.failOver(random.between(1_000, 6_000));
    return nothing;
  }),
  onRedis("redis restarted on an old snapshot", [300, 2_000], ({ redis, random }) =>
    redis.killAndRestore(random.between(1_000, 6_000)),
  ),
  onRedis("old redis writes replayed", [700, 1_500], ({ redis, random }) => repeat(20, () => redis.replay(random))),
  onRedis("redis evicting", [500, 1_500], ({ redis, random }) => repeat(50, () => redis.evict(0.3, random))),
  onLink("postgres", "cut", (link) => link.cut()),
  onLink("postgres", "stalled", (link) => link.stall()),
  onLink("postgres", "delayed", (link, random) => link.delay(random.between(20, 150))),
  // The replica then receives old snapshots, and its lease is nearly over.
  onLink("postgres", "answering late", (link, random) => link.delayResponses(random.between(150, 240))),
  {
    name: "postgres blackholed for one",
    resource: "postgres link of one",
    durationMs: [500, 3_000],
    start(_context, { postgres }) {
      postgres.blackhole();
      // Dropped packets are never delivered, so the connections must end.
      return () => {
        postgres.cut();
        postgres.resume();
      };
    },
  },
  onLinks("postgres", "cut", [100, 500], (link) => link.cut()),
  onSessions("postgres sessions terminated", [500, 1_500], ({ cluster }) =>
    repeat(100, () => cluster.terminateSessions(0.2)),
  ),
  onSessions("postgres statements cancelled", [500, 1_500], ({ cluster }) =>
    repeat(20, () => cluster.cancelStatements()),
  ),
  onSessions("waits for the standby cancelled", [500, 1_500], ({ cluster }) => {
    cluster.pauseReplication();
    const stop = repeat(20, () => cluster.cancelWaits());
    return async () => {
      await stop();
      cluster.resumeReplication();
    };
  }),
  onPostgres("postgres restarted", ({ cluster }) => cluster.stop("fast")),
  onPostgres("postgres crashed", ({ cluster }) => cluster.stop("crash")),
  {
    name: "primary lost, standby promoted",
    resource: "postgres",
    durationMs: [0, 300],
    async start({ cluster, audit, random }) {
      // A change is acknowledged one lease after its commit, and a retry one lease after that. Replication is paused
      // for long enough that a commit without the standby would be acknowledged.
      const pausedUntil = performance.now() + random.between(700, 1_500);
      cluster.pauseReplication();
      for (; performance.now() < pausedUntil; await sleep(20)) await cluster.cancelWaits();
      await cluster.failOver();
      // Changes wait for the new standby. The reads of the audit do not.
      return async () => void (await Promise.all([audit(), cluster.addStandby()]));
    },
  },
  // The transaction has an id, so every snapshot lists it as in progress until it ends.
  withTransaction("long transaction", async (session) => {
    await session`begin`;
    await session`select pg_current_xact_id()`;
  }),
  // Its changes have transaction ids by then, and stay in progress while later changes of other workspaces commit.
  withTransaction(
    "changes of one workspace blocked",
    async (session) => {
      await session`begin`;
      await session`
        select from usage
        where workspace_id = (select workspace_id from workspaces order by random() limit 1) for update`;
    },
    [200, 1_500],
  ),
  withTransaction("long transaction that only reads", async (session) => {
    await session`begin isolation level repeatable read`;
    await session`select from keys limit 1`;
  }),
  {
    // Longer than another replica needs to acknowledge a change, shorter than the time after which the queue sheds.
    name: "connections occupied for one",
    resource: "connections of one",
    durationMs: [400, 900],
    start: ({ poolExhauster }, replica) => poolExhauster.occupy(replica),
  },
  onProcess("replica killed", [100, 1_500], async (replica) => {
    await replica.kill();
    return () => restart(replica);
  }),
  onProcess("replica frozen", [100, 3_000], (replica) => {
    replica.freeze();
    return replica.thaw;
  }),
  onProcess("replica restarted", [0, 500], async (replica) => {
    await replica.stop();
    return () => restart(replica);
  }),
  {
    // The replica keeps these clocks until the next fault of this kind.
    name: "replica restarted with other clocks",
    resource: "process of one",
    durationMs: [0, 500],
    async start({ random }, replica) {
      await replica.kill();
      const hasCorrectClock = random.chance(0.2);
      const clock = hasCorrectClock
        ? {}
        : { aheadMs: random.between(-3_000, 3_000), speed: random.between(0.92, 1.08) };
      return () => restart(replica, clock);
    },
  },
  {
    name: "replica suspended",
    resource: "process of one, and its database",
    durationMs: [500, 3_000],
    async start({ roundTrip, recordBound }, replica) {
      // Earlier faults of its database must be over: the limit is valid only while Postgres responds.
      await sleep(1_000);
      await replica.suspend();
      return async () => {
        replica.resume();
        const resumedAt = performance.now();
        const strictAt = await awaitStrict(replica, roundTrip);
        replica.suspends.ended(strictAt);
        recordBound(strictAt - resumedAt);
      };
    },
  },
  {
    name: "worker killed",
    resource: "process of one",
    appliesTo: ({ workers }) => workers > 1,
    durationMs: [0, 300],
    async start(_context, replica) {
      await replica.killWorker();
      return nothing;
    },
  },
  onVerifier("frozen", (verifier) => {
    verifier.freeze();
    return verifier.thaw;
  }),
  onVerifier("suspended", async (verifier) => {
    await verifier.suspend();
    return verifier.resume;
  }),
  onVerifier("cut off", (verifier) => onVerifierLinks(verifier, (link) => link.cut())),
  onVerifier("cut off from one replica", (verifier, random) => {
    const link = random.pick(verifier.links);
    link.cut();
    return () => link.resume();
  }),
  onVerifier("stalled", (verifier) => onVerifierLinks(verifier, (link) => link.stall())),
  onVerifier("delayed", (verifier, random) => {
    const delayMs = random.between(10, 150);
    return onVerifierLinks(verifier, (link) => link.delay(delayMs));
  }),
  // Grants then arrive when their lease is nearly over, or is over.
  onVerifier("answered late", (verifier, random) => {
    const delayMs = random.between(150, 600);
    return onVerifierLinks(verifier, (link) => link.delayResponses(delayMs));
  }),
  onVerifier("restarted with other clocks", async (verifier, random) => {
    await verifier.kill();
    const clock = { aheadMs: random.between(-3_000, 3_000), speed: random.between(0.92, 1.08) };
    return () => verifier.start(clock);
  }),
];

/** The kinds of faults that need verifiers. */
export const isOfVerifier = ({ resource }: FaultKind) => resource === "verifier";

const nothing = () => {};

type LinkName = "redis" | "postgres";
type ApplyFault = (link: BackendProxy, random: Random) => void;

function onLink(backend: LinkName, how: string, apply: ApplyFault): FaultKind {
  return {
    name: `${backend} ${how} for one`,
    resource: `${backend} link of one`,
    durationMs: [300, 3_000],
    start({ random }, replica) {
      apply(replica[backend], random);
      return () => replica[backend].resume();
    },
  };
}

function onLinks(backend: LinkName, how: string, durationMs: FaultKind["durationMs"], apply: ApplyFault): FaultKind {
  return {
    name: `${backend} ${how} for all`,
    resource: `${backend} links of all`,
    durationMs,
    start({ replicas, random }) {
      for (const replica of replicas) apply(replica[backend], random);
      return () => {
        for (const replica of replicas) replica[backend].resume();
      };
    },
  };
}

function onRedis(name: string, durationMs: FaultKind["durationMs"], start: FaultKind["start"]): FaultKind {
  return { name, resource: "redis", durationMs, start };
}

/** A fault of sessions, which needs a PostgreSQL that can be reached. */
function onSessions(name: string, durationMs: FaultKind["durationMs"], start: FaultKind["start"]): FaultKind {
  return { name, resource: "sessions of postgres", durationMs, start };
}

function onPostgres(name: string, stop: (context: FaultContext) => Promise<void>): FaultKind {
  return {
    name,
    resource: "postgres",
    durationMs: [0, 600],
    async start(context) {
      await stop(context);
      return context.cluster.start;
    },
  };
}

function onVerifier(
  how: string,
  start: (verifier: VerifierProcess, random: Random) => Promise<Heal> | Heal,
): FaultKind {
  return {
    name: `verifier ${how}`,
    resource: "verifier",
    durationMs: [300, 3_000],
    start: ({ verifiers, random }) => start(random.pick(verifiers), random),
  };
}

function onVerifierLinks({ links }: VerifierProcess, apply: (link: BackendProxy) => void): Heal {
  for (const link of links) apply(link);
  return () => {
    for (const link of links) link.resume();
  };
}

function onProcess(
  name: string,
  durationMs: FaultKind["durationMs"],
  start: (replica: Replica) => Promise<Heal> | Heal,
): FaultKind {
  return { name, resource: "process of one", durationMs, start: (_context, replica) => start(replica) };
}

/** Repeats the action until the fault is healed. */
function repeat(pauseMs: number, action: () => Promise<unknown>): () => Promise<void> {
  let active = true;
  const ended = (async () => {
    while (active) {
      await action().catch(nothing); // the server is being replaced
      await sleep(pauseMs);
    }
  })();
  return async () => {
    active = false;
    await ended;
  };
}

/** Retries, because an outgoing connection of this machine may briefly use one of the replica's ports. */
async function restart(replica: Replica, clock?: OtherClock): Promise<void> {
  for (let attemptsLeft = 5; ; attemptsLeft--) {
    try {
      return await replica.start(clock);
    } catch (error) {
      if (attemptsLeft === 0) throw error;
      await sleep(300);
    }
  }
}

/** The default lease time, and how often a replica renews its lease in that time. */
const leaseMs = 250;
const renewalsPerLease = 3;

/**
 * Resolves to the moment from which on a resumed replica must apply the changes that were acknowledged during its
 * suspend: one renewal interval by its own clocks, and a round trip to Postgres. The round trip is measured with two
 * calls that query Postgres, because the query of the change poller is larger. The end of the lease is the upper limit.
 */
async function awaitStrict(replica: Replica, roundTrip: FaultContext["roundTrip"]): Promise<number> {
  const resumedAt = performance.now();
  const leaseEndsAt = resumedAt + leaseMs / replica.speed();
  await sleep(leaseMs / renewalsPerLease / replica.speed());
  const responded = (await roundTrip(replica)) && (await roundTrip(replica));
  return responded ? Math.min(performance.now(), leaseEndsAt) : leaseEndsAt;
}

/** A session of another client, which leaves its transaction open. */
function withTransaction(
  name: string,
  begin: (session: postgres.Sql) => Promise<void>,
  durationMs: FaultKind["durationMs"] = [1_000, 8_000],
): FaultKind {
  return {
    name,
    resource: "nothing",
    durationMs,
    async start({ databaseUrl }) {
      for (let attemptsLeft = 50; ; attemptsLeft--) {
        const session = openSession(databaseUrl, { idle_timeout: 0 });
        try {
          await begin(session);
          // The session may already have ended with its server.
          return () => session.end({ timeout: 1 });
        } catch (error) {
          await session.end({ timeout: 1 });
          if (attemptsLeft === 0) throw error;
          await sleep(200);
        }
      }
    },
  };
}
