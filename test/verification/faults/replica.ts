import { spawnSync } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { pathToFileURL } from "node:url";
import { type Launched, launchNode } from "../../../commands/processes.js";
import { project } from "../../../commands/project.js";
import { type BackendProxy, openProxy } from "../../support/proxy.js";
import { createSuspends, type Suspends } from "./suspends.js";

/** One process of the service, or several with one parent, which reaches each backend by a network of its own. */
export interface Replica {
  readonly name: string;
  /** How many processes serve. */
  readonly workers: number;
  readonly suspends: Suspends;
  readonly httpPort: number;
  readonly grpcPort: number;
  readonly postgres: BackendProxy;
  readonly redis: BackendProxy;
  freeze(): void;
  thaw(): void;
  /** Freezes it, with its clocks standing still until it is resumed, as those of a virtual machine may. */
  suspend(): Promise<void>;
  resume(): void;
  /** Kills one of its workers; resolves when another serves in its place. */
  killWorker(): Promise<void>;
  kill(): Promise<void>;
  stop(): Promise<void>;
  /** Starts it again, on the same ports and with the same clocks, unless others are given. */
  start(otherClock?: OtherClock): Promise<void>;
  /** Its name, and by how much its clocks differ: for people. */
  describe(): string;
  /** How fast its clocks run. */
  speed(): number;
  /** How often it ended by itself. */
  crashes(): number;
  /** The end of what it logged. */
  log(): string;
  close(): Promise<void>;
}

/** What all replicas have in common. */
export interface Installation {
  /** The folder of the built service. */
  readonly dist: string;
  readonly databaseUrl: string;
  readonly redisUrl: string;
  readonly operatorKey: string;
  readonly dataDir: string;
}

/** How the clocks of a machine differ from those of the others. */
export interface OtherClock {
  /** By how much its time of day is ahead; negative: behind. */
  readonly aheadMs?: number;
  /** How fast its clocks run; 1.01 is one hundredth too fast. */
  readonly speed?: number;
}

/** Within this time a process stops that is told to. */
const stopMs = 5;

/** How long a start may take on a busy machine, with a backend that answers late. */
const startMs = 20_000;

export interface ReplicaOptions {
  readonly clock?: OtherClock;
  readonly workers?: number;
}

export async function openReplica(
  name: string,
  installation: Installation,
  { clock: firstClock = {}, workers = 1 }: ReplicaOptions = {},
): Promise<Replica> {
  const pausesFile = join(mkdtempSync(join(tmpdir(), "latchkey-clock-")), "pauses");
  const suspends = createSuspends();
  let clock = firstClock;
  let pausesMs = 0;
  let pausedAt = 0;
  writeFileSync(pausesFile, "0");
  const postgres = await openProxy(installation.databaseUrl);
  const redis = await openProxy(installation.redisUrl);
  let ports = { http: 0, grpc: 0 };
  let running: Launched | undefined;
  let log = "";
  let crashes = 0;

  async function start(otherClock = clock): Promise<void> {
    clock = otherClock;
    const { aheadMs, speed } = { aheadMs: 0, speed: 1, ...clock };
    // Workers are started with the arguments of Node, too, and so have the same clocks.
    const preloaded = ["--import", pathToFileURL(join(project, "test/integration/revocation/other-clock.mjs")).href];
    const launched = launchNode([...preloaded, join(installation.dist, "src/main.js")], {
      CLOCK_AHEAD_MS: `${aheadMs}`,
      CLOCK_SPEED: `${speed}`,
      PAUSES_FILE: pausesFile,
      WORKERS: `${workers}`,
      PATH: process.env["PATH"],
      DATABASE_URL: postgres.url,
      REDIS_URL: redis.url,
      OPERATOR_KEY: installation.operatorKey,
      DATA_DIR: installation.dataDir,
      HTTP_PORT: `${ports.http}`,
      GRPC_PORT: `${ports.grpc}`,
      LOG_LEVEL: "error",
    });
    running = launched;
    launched.child.stderr?.setEncoding("utf8").on("data", (text) => {
      log = (log + text).slice(-4_000);
    });
    ports = await readPorts(launched, () => log);
    void launched.ended.then(() => {
      if (running === launched) crashes++;
    });
  }

  /** What ends from now on does so because it was told to. */
  function dismissed(): Launched | undefined {
    const launched = running;
    running = undefined;
    return launched;
  }

  const replica: Replica = {
    name,
    workers,
    suspends,
    get httpPort() {
      return ports.http;
    },
    get grpcPort() {
      return ports.grpc;
    },
    postgres,
    redis,
    freeze: () => running?.freeze(),
    thaw: () => running?.thaw(),
    async suspend() {
      suspends.began(performance.now());
      running?.freeze();
      // Until it has surely stopped: a little too short a pause is none that a clock shows.
      await sleep(stopMs);
      pausedAt = performance.now();
    },
    resume() {
      pausesMs += performance.now() - pausedAt;
      writeFileSync(pausesFile, `${pausesMs}`);
      running?.thaw();
    },
    async killWorker() {
      const parent = running?.child.pid;
      const before = childrenOf(parent);
      const [victim] = before;
      if (victim === undefined) throw new Error(`${name} has no workers`);
      process.kill(victim, "SIGKILL");
      const isReplaced = () => childrenOf(parent).filter((pid) => pid !== victim).length === workers;
      for (const deadline = performance.now() + startMs; !isReplaced(); await sleep(100)) {
        if (performance.now() > deadline) throw new Error(`a worker of ${name} was not replaced:\n${log}`);
      }
    },
    kill: async () => dismissed()?.kill(),
    stop: async () => dismissed()?.stop(5_000),
    start,
    describe() {
      const { aheadMs = 0, speed = 1 } = clock;
      return aheadMs === 0 && speed === 1
        ? name
        : `${name} (${aheadMs.toFixed(0)} ms ahead, speed ${speed.toFixed(3)})`;
    },
    speed: () => clock.speed ?? 1,
    crashes: () => crashes,
    log: () => log,
    async close() {
      await replica.kill();
      await Promise.all([postgres.close(), redis.close()]);
      rmSync(dirname(pausesFile), { recursive: true, force: true });
    },
  };

  try {
    await start();
    return replica;
  } catch (error) {
    await replica.close();
    throw error;
  }
}

/** The processes that a process has started. */
function childrenOf(parent: number | undefined): number[] {
  const { stdout } = spawnSync("ps", ["-A", "-o", "pid=,ppid="], { encoding: "utf8" });
  const rows = stdout.split("\n").map((line) => line.trim().split(/\s+/).map(Number));
  return rows.flatMap(([pid, ppid]) => (pid !== undefined && ppid === parent ? [pid] : []));
}

/** Waits for the lines in which the service says where it listens. */
async function readPorts({ child, ended }: Launched, log: () => string): Promise<{ http: number; grpc: number }> {
  let banner = "";
  const ready = new AbortController();
  const late = AbortSignal.any([AbortSignal.timeout(startMs), ready.signal]);
  child.stdout?.setEncoding("utf8").on("data", (text) => {
    banner += text;
    if (banner.includes("Ctrl-C stops it.")) ready.abort();
  });
  await Promise.race([ended, once(late, "abort")]);
  const http = /^ +HTTP\/JSON, Connect +\S+:(\d+)$/m.exec(banner)?.[1];
  const grpc = /^ +gRPC +\S+:(\d+)$/m.exec(banner)?.[1];
  if (http === undefined || grpc === undefined) {
    child.kill("SIGKILL");
    throw new Error(`a replica did not start:\n${banner}${log()}`);
  }
  return { http: Number(http), grpc: Number(grpc) };
}
