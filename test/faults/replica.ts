import { once } from "node:events";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { type Launched, launchNode } from "../../commands/processes.js";
import { project } from "../../commands/project.js";
import { type BackendProxy, openProxy } from "../proxy.js";

/** One process of the service, which reaches each backend by a network of its own. */
export interface Replica {
  readonly name: string;
  readonly httpPort: number;
  readonly grpcPort: number;
  readonly postgres: BackendProxy;
  readonly redis: BackendProxy;
  freeze(): void;
  thaw(): void;
  kill(): Promise<void>;
  stop(): Promise<void>;
  /** Starts it again, on the same ports. */
  start(): Promise<void>;
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

/** How long a start may take on a busy machine, with a backend that answers late. */
const startMs = 20_000;

export async function openReplica(name: string, installation: Installation, otherClock?: OtherClock): Promise<Replica> {
  const postgres = await openProxy(installation.databaseUrl);
  const redis = await openProxy(installation.redisUrl);
  let ports = { http: 0, grpc: 0 };
  let running: Launched | undefined;
  let log = "";
  let crashes = 0;

  async function start(): Promise<void> {
    const preloaded = otherClock ? ["--import", pathToFileURL(join(project, "test/auth/other-clock.mjs")).href] : [];
    const launched = launchNode([...preloaded, join(installation.dist, "src/main.js")], {
      CLOCK_AHEAD_MS: `${otherClock?.aheadMs ?? 0}`,
      CLOCK_SPEED: `${otherClock?.speed ?? 1}`,
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
    kill: async () => dismissed()?.kill(),
    stop: async () => dismissed()?.stop(5_000),
    start,
    crashes: () => crashes,
    log: () => log,
    async close() {
      await replica.kill();
      await Promise.all([postgres.close(), redis.close()]);
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
