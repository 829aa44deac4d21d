import { setTimeout as sleep } from "node:timers/promises";
import type postgres from "postgres";
import type { BackendProxy } from "../../support/proxy.js";
import type { Cluster } from "./cluster.js";
import type { Occupant } from "./occupant.js";
import type { Random } from "./random.js";
import type { RedisService } from "./redis-service.js";
import type { OtherClock, Replica } from "./replica.js";
import { openSession } from "./session.js";

/** What faults are made on. */
export interface Scene {
  readonly replicas: readonly Replica[];
  readonly redis: RedisService;
  readonly cluster: Cluster;
  readonly occupant: Occupant;
  readonly databaseUrl: string;
  /** Resolves when every process of a replica has asked Postgres something and was answered; false if one was not. */
  readonly roundTrip: (replica: Replica) => Promise<boolean>;
  /** Counts for how long a replica that was suspended had to obey. */
  readonly suspended: (boundMs: number) => void;
  /** Looks at all that were changed not long ago, and holds each against what was acknowledged. */
  readonly audit: () => Promise<unknown>;
  readonly random: Random;
}

/** One kind of fault. */
export interface FaultKind {
  readonly name: string;
  /** What it takes hold of: two faults that hold the same part are not made at once. */
  readonly holds: Part;
  /** The replicas that it can be made on, if not on all. */
  readonly fits?: (replica: Replica) => boolean;
  /** How long it lasts, in milliseconds. */
  readonly lasts: readonly [number, number];
  /** Makes it, on this replica if it is about one, and returns how to heal it. */
  start(scene: Scene, one: Replica): Promise<Heal> | Heal;
}

export type Part =
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
  | "nothing";

export type Heal = () => Promise<void> | void;

/** Every kind of fault that the laboratory knows. */
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
    redis.lose(random.between(1_000, 6_000)),
  ),
  onRedis("old redis writes replayed", [700, 1_500], ({ redis, random }) => over(20, () => redis.replay(random))),
  onRedis("redis evicting", [500, 1_500], ({ redis, random }) => over(50, () => redis.evict(0.3, random))),
  onLink("postgres", "cut", (link) => link.cut()),
  onLink("postgres", "stalled", (link) => link.stall()),
  onLink("postgres", "delayed", (link, random) => link.delay(random.between(20, 150))),
  // So what a replica is told is old, and its lease nearly over.
  onLink("postgres", "answering late", (link, random) => link.delayAnswers(random.between(150, 240))),
  {
    name: "postgres blackholed for one",
    holds: "postgres link of one",
    lasts: [500, 3_000],
    start(_scene, { postgres }) {
      postgres.blackhole();
      // What was forgotten on the way is not delivered later; its connections end.
      return () => {
        postgres.cut();
        postgres.resume();
      };
    },
  },
  onLinks("postgres", "cut", [100, 500], (link) => link.cut()),
  onSessions("postgres sessions terminated", [500, 1_500], ({ cluster }) =>
    over(100, () => cluster.terminateSessions(0.2)),
  ),
  onSessions("postgres statements cancelled", [500, 1_500], ({ cluster }) =>
    over(20, () => cluster.cancelStatements()),
  ),
  onSessions("waits for the standby cancelled", [500, 1_500], ({ cluster }) => {
    cluster.holdReplication();
    const stop = over(20, () => cluster.cancelWaits());
    return async () => {
      await stop();
      cluster.resumeReplication();
    };
  }),
  onPostgres("postgres restarted", ({ cluster }) => cluster.stop("fast")),
  onPostgres("postgres crashed", ({ cluster }) => cluster.stop("crash")),
  {
    name: "primary lost, standby promoted",
    holds: "postgres",
    lasts: [0, 300],
    async start({ cluster, audit, random }) {
      // A change is acknowledged a lease after its commit, and a second attempt a lease after that: what is committed
      // without the standby is to be acknowledged by then.
      const behindUntil = performance.now() + random.between(700, 1_500);
      cluster.holdReplication();
      for (; performance.now() < behindUntil; await sleep(20)) await cluster.cancelWaits();
      await cluster.failOver();
      // Changes wait for the standby; those who look at what there is do not.
      return async () => void (await Promise.all([audit(), cluster.addStandby()]));
    },
  },
  // It has a transaction id, and so is in progress in every snapshot until it ends.
  withTransaction("long transaction", async (own) => {
    await own`begin`;
    await own`select pg_current_xact_id()`;
  }),
  withTransaction("long transaction that only reads", async (own) => {
    await own`begin isolation level repeatable read`;
    await own`select from keys limit 1`;
  }),
  {
    // Longer than a change takes to be acknowledged elsewhere, shorter than a queue may stand before it is cut.
    name: "connections occupied for one",
    holds: "connections of one",
    lasts: [400, 900],
    start: ({ occupant }, one) => occupant.occupy(one),
  },
  onProcess("replica killed", [100, 1_500], async (replica) => {
    await replica.kill();
    return () => startAgain(replica);
  }),
  onProcess("replica frozen", [100, 3_000], (replica) => {
    replica.freeze();
    return replica.thaw;
  }),
  onProcess("replica restarted", [0, 500], async (replica) => {
    await replica.stop();
    return () => startAgain(replica);
  }),
  {
    // It keeps them until this comes again.
    name: "replica restarted with other clocks",
    holds: "process of one",
    lasts: [0, 500],
    async start({ random }, one) {
      await one.kill();
      const isSound = random.chance(0.2);
      const clock = isSound ? {} : { aheadMs: random.between(-3_000, 3_000), speed: random.between(0.92, 1.08) };
      return () => startAgain(one, clock);
    },
  },
  {
    name: "replica suspended",
    holds: "process of one, and its database",
    lasts: [500, 3_000],
    async start({ roundTrip, suspended }, one) {
      // What befell its database before is over: the bound holds while Postgres answers.
      await sleep(1_000);
      await one.suspend();
      return async () => {
        one.resume();
        const resumedAt = performance.now();
        const obeysAt = await untilItObeys(one, roundTrip);
        one.suspends.ended(obeysAt);
        suspended(obeysAt - resumedAt);
      };
    },
  },
  {
    name: "worker killed",
    holds: "process of one",
    fits: ({ workers }) => workers > 1,
    lasts: [0, 300],
    async start(_scene, one) {
      await one.killWorker();
      return nothing;
    },
  },
];

const nothing = () => {};

type LinkName = "redis" | "postgres";
type Harm = (link: BackendProxy, random: Random) => void;

function onLink(backend: LinkName, how: string, harm: Harm): FaultKind {
  return {
    name: `${backend} ${how} for one`,
    holds: `${backend} link of one`,
    lasts: [300, 3_000],
    start({ random }, one) {
      harm(one[backend], random);
      return () => one[backend].resume();
    },
  };
}

function onLinks(backend: LinkName, how: string, lasts: FaultKind["lasts"], harm: Harm): FaultKind {
  return {
    name: `${backend} ${how} for all`,
    holds: `${backend} links of all`,
    lasts,
    start({ replicas, random }) {
      for (const replica of replicas) harm(replica[backend], random);
      return () => {
        for (const replica of replicas) replica[backend].resume();
      };
    },
  };
}

function onRedis(name: string, lasts: FaultKind["lasts"], start: FaultKind["start"]): FaultKind {
  return { name, holds: "redis", lasts, start };
}

/** While it can be reached. */
function onSessions(name: string, lasts: FaultKind["lasts"], start: FaultKind["start"]): FaultKind {
  return { name, holds: "sessions of postgres", lasts, start };
}

function onPostgres(name: string, stop: (scene: Scene) => Promise<void>): FaultKind {
  return {
    name,
    holds: "postgres",
    lasts: [0, 600],
    async start(scene) {
      await stop(scene);
      return scene.cluster.start;
    },
  };
}

function onProcess(
  name: string,
  lasts: FaultKind["lasts"],
  start: (replica: Replica) => Promise<Heal> | Heal,
): FaultKind {
  return { name, holds: "process of one", lasts, start: (_scene, one) => start(one) };
}

/** Does it again and again until it is healed. */
function over(pauseMs: number, action: () => Promise<unknown>): () => Promise<void> {
  let going = true;
  const ended = (async () => {
    while (going) {
      await action().catch(nothing); // the server is being replaced just now
      await sleep(pauseMs);
    }
  })();
  return async () => {
    going = false;
    await ended;
  };
}

/** Its old ports may be taken for a moment by a connection that goes out from this machine. */
async function startAgain(replica: Replica, clock?: OtherClock): Promise<void> {
  for (let attemptsLeft = 5; ; attemptsLeft--) {
    try {
      return await replica.start(clock);
    } catch (error) {
      if (attemptsLeft === 0) throw error;
      await sleep(300);
    }
  }
}

/** The lease as it is installed, and how often it is renewed meanwhile. */
const leaseMs = 250;
const renewalsPerLease = 3;

/**
 * When a replica must obey what was acknowledged while it was suspended: one renewal interval after it goes on, by its own
 * clocks, and a round trip to Postgres. How long that takes just now is measured by calls that ask Postgres, twice: the
 * question of the lease is a larger one. In any case, when its lease is over.
 */
async function untilItObeys(replica: Replica, roundTrip: Scene["roundTrip"]): Promise<number> {
  const resumedAt = performance.now();
  const leaseOverAt = resumedAt + leaseMs / replica.speed();
  await sleep(leaseMs / renewalsPerLease / replica.speed());
  const isAnswered = (await roundTrip(replica)) && (await roundTrip(replica));
  return isAnswered ? Math.min(performance.now(), leaseOverAt) : leaseOverAt;
}

/** A session of somebody else, which leaves its transaction open. */
function withTransaction(name: string, begin: (own: postgres.Sql) => Promise<void>): FaultKind {
  return {
    name,
    holds: "nothing",
    lasts: [1_000, 8_000],
    async start({ databaseUrl }) {
      for (let attemptsLeft = 50; ; attemptsLeft--) {
        const own = openSession(databaseUrl, { idle_timeout: 0 });
        try {
          await begin(own);
          // It may have ended with its server.
          return () => own.end({ timeout: 1 });
        } catch (error) {
          await own.end({ timeout: 1 });
          if (attemptsLeft === 0) throw error;
          await sleep(200);
        }
      }
    },
  };
}
