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

/** A running service: one process, or a parent with several workers. It reaches each backend through its own proxy. */
export interface Replica {
  readonly name: string;
  /** The number of processes that serve calls. */
  readonly workers: number;
  readonly suspends: Suspends;
  readonly httpPort: number;
  readonly grpcPort: number;
  readonly postgres: BackendProxy;
  readonly redis: BackendProxy;
  freeze(): void;
  thaw(): void;
  /** Freezes it and stops its clocks until it is resumed, like a suspended virtual machine. */
  suspend(): Promise<void>;
  resume(): void;
  /** Kills one of its workers. Resolves when another one has replaced it. */
  killWorker(): Promise<void>;
  kill(): Promise<void>;
  stop(): Promise<void>;
  /** Restarts it on the same ports, and with the same clocks unless others are given. */
  start(newClock?: OtherClock): Promise<void>;
  /** Its name and the deviation of its clocks, for reports. */
  describe(): string;
  /** The speed of its clocks; 1 is correct. */
  speed(): number;
  /** How often it exited unexpectedly. */
  crashes(): number;
  /** The last part of its log. */
  log(): string;
  close(): Promise<void>;
}

/** The configuration that all replicas share. */
export interface Installation {
  /** The folder of the built service. */
  readonly dist: string;
  readonly databaseUrl: string;
  readonly redisUrl: string;
  readonly operatorKey: string;
  readonly dataDir: string;
}

/** The deviation of a machine's clocks. */
export interface OtherClock {
  /** By how much its time of day is ahead. Negative if it is behind. */
  readonly aheadMs?: number;
  /** The speed of its clocks; 1.01 is 1 % too fast. */
  readonly speed?: number;
}

/** A process has stopped within this time after SIGSTOP. */
const freezeMs = 5;

/** Long enough for a start on a busy machine with a slow backend. */
const startTimeoutMs = 20_000;

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
  let totalPauseMs = 0;
  let pausedAt = 0;
  writeFileSync(pausesFile, "0");
  const postgres = await openProxy(installation.databaseUrl);
  const redis = await openProxy(installation.redisUrl);
  let ports = { http: 0, grpc: 0 };
  let running: Launched | undefined;
  let log = "";
  let crashes = 0;

  async function start(newClock = clock): Promise<void> {
    clock = newClock;
    const { aheadMs, speed } = { aheadMs: 0, speed: 1, ...clock };
    // Node passes these arguments on to workers, so they have the same clocks.
    const preloaded = ["--import", pathToFileURL(join(project, "test/verification/clocks/other-clock.mjs")).href];
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

  /** An exit of the returned process is no longer counted as a crash. */
  function detach(): Launched | undefined {
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
      // Wait until it has stopped, so that the pause which its clocks skip is never longer than the real one.
      await sleep(freezeMs);
      pausedAt = performance.now();
    },
    resume() {
      totalPauseMs += performance.now() - pausedAt;
      writeFileSync(pausesFile, `${totalPauseMs}`);
      running?.thaw();
    },
    async killWorker() {
      const parent = running?.child.pid;
      const before = childrenOf(parent);
      const [victim] = before;
      if (victim === undefined) throw new Error(`${name} has no workers`);
      process.kill(victim, "SIGKILL");
      const isReplaced = () => childrenOf(parent).filter((pid) => pid !== victim).length === workers;
      for (const deadline = performance.now() + startTimeoutMs; !isReplaced(); await sleep(100)) {
        if (performance.now() > deadline) throw new Error(`a worker of ${name} was not replaced:\n${log}`);
      }
    },
    kill: async () => detach()?.kill(),
    stop: async () => detach()?.stop(5_000),
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

/** The child processes of a process. */
function childrenOf(parent: number | undefined): number[] {
  const { stdout } = spawnSync("ps", ["-A", "-o", "pid=,ppid="], { encoding: "utf8" });
  const rows = stdout.split("\n").map((line) => line.trim().split(/\s+/).map(Number));
  return rows.flatMap(([pid, ppid]) => (pid !== undefined && ppid === parent ? [pid] : []));
}

/** Waits for the startup banner, which names the ports. */
async function readPorts({ child, ended }: Launched, log: () => string): Promise<{ http: number; grpc: number }> {
  let banner = "";
  const ready = new AbortController();
  const readyOrTimeout = AbortSignal.any([AbortSignal.timeout(startTimeoutMs), ready.signal]);
  child.stdout?.setEncoding("utf8").on("data", (text) => {
    banner += text;
    if (banner.includes("Ctrl-C stops it.")) ready.abort();
  });
  await Promise.race([ended, once(readyOrTimeout, "abort")]);
  const http = /^ +HTTP\/JSON, Connect +\S+:(\d+)$/m.exec(banner)?.[1];
  const grpc = /^ +gRPC +\S+:(\d+)$/m.exec(banner)?.[1];
  if (http === undefined || grpc === undefined) {
    child.kill("SIGKILL");
    throw new Error(`a replica did not start:\n${banner}${log()}`);
  }
  return { http: Number(http), grpc: Number(grpc) };
}
