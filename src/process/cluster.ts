import cluster from "node:cluster";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import type { App, AppOptions } from "../app.js";
import { UserError } from "../errors.js";
import { openMetricsServer } from "../http/metrics-server.js";
import type { Log, LogLevel } from "../observe/log.js";
import { combineCounts, combineMetrics, type Metrics, type MetricsData } from "../observe/metrics.js";
import { defaultLimits } from "../overload/limits.js";

/** The options of a service with several worker processes. */
export interface ClusterOptions extends Omit<AppOptions, "guard" | "limits"> {
  readonly workers: number;
  readonly logLevel: LogLevel;
}

/** The options of one worker. They contain secrets, so they go through the IPC channel and not the command line. */
export interface WorkerOptions extends Omit<ClusterOptions, "workers" | "metricsHost" | "metricsPort" | "log"> {
  /** The number of the worker, from 1. Its replacement gets the same number. */
  readonly number: number;
}

/** The calls that the primary makes to a worker. */
export interface WorkerCalls {
  open(options: WorkerOptions): Promise<Addresses>;
  createFirstWorkspace(name: string): ReturnType<App["createFirstWorkspace"]>;
  readMetrics(): Promise<MetricsData>;
  /** The state of the worker. Undefined: it is not ready. */
  readiness(): Promise<Readonly<Record<string, string>> | undefined>;
  stopAccepting(): Promise<void>;
  close(): Promise<void>;
}

type Addresses = Pick<App, "httpUrl" | "grpcAddress">;

/** A call, as it is sent through the IPC channel. */
export interface WorkerRequest {
  readonly id: number;
  readonly call: keyof WorkerCalls;
  readonly argument: unknown;
}

export type WorkerResponse =
  | { readonly value: unknown }
  | { readonly failure: { readonly userFacing: boolean; readonly message: string } };

/** Limits how often a worker that exits immediately is restarted, so that it does not keep the machine busy. */
const minRestartIntervalMs = 1_000;

/** How long a worker may take to respond. One that hangs must delay neither the others nor a scrape. */
const responseMs = 2_000;

/** How long a worker may take to close: 10 seconds for calls in flight, 5 to store its counts, and a margin. */
const closeMs = 20_000;

/**
 * Opens the application in several processes on the same ports, so that it can use several cores. Each worker is a
 * replica: the workers share only the ports. Resolves when all of them serve.
 */
export async function openCluster({
  workers,
  metricsHost,
  metricsPort,
  log,
  ...options
}: ClusterOptions): Promise<App> {
  // Connections are long-lived, so their initial distribution decides the distribution of the load. Round robin gave
  // two workers 32 of 64 connections each. The kernel (SCHED_NONE) gave them 8 and 56, or 48 and 16. The cost, one
  // message between processes, is per connection and not per call. Set first: after setupPrimary, it has no effect.
  cluster.schedulingPolicy = cluster.SCHED_RR;
  cluster.setupPrimary({ exec: fileURLToPath(new URL("./worker.js", import.meta.url)), args: [] });
  const first = superviseWorker({ ...options, number: 1 }, log);
  const others = Array.from({ length: workers - 1 }, (_, index) =>
    superviseWorker({ ...options, number: index + 2 }, log),
  );
  const all = [first, ...others];
  let metricsServer: Awaited<ReturnType<typeof openMetricsServer>> | undefined;

  async function metrics(): Promise<Metrics> {
    return combineMetrics((await Promise.all(all.map((worker) => worker.readMetrics()))).flat());
  }

  /** Ready if a worker is: while another one is replaced, its connections go to this one. */
  async function readiness(): Promise<Readonly<Record<string, string>>> {
    const notReady = new Error("no worker is ready");
    const read = async (worker: (typeof all)[number]) =>
      (await inTime(worker.request("readiness"))) ?? Promise.reject(notReady);
    return Promise.any(all.map(read)).catch(() => Promise.reject(notReady));
  }

  async function stopAccepting(): Promise<void> {
    await Promise.all(all.map((worker) => worker.stopAccepting()));
  }

  async function close(): Promise<void> {
    // First for all workers: a client that one worker disconnects must not reconnect to another that is shutting down.
    await stopAccepting();
    metricsServer?.close(); // until then, its probe reports that the service is not ready
    await Promise.all(all.map((worker) => worker.close()));
  }

  try {
    await Promise.all(all.map(({ opened }) => opened));
    if (metricsPort !== undefined)
      metricsServer = await openMetricsServer({ metrics, readiness }, metricsHost, metricsPort, log, defaultLimits);
    return {
      // All workers have these addresses: cluster gives them the same ports, even if each asks for a free one.
      ...(await first.opened),
      metricsUrl: metricsServer?.url,
      createFirstWorkspace: (name) => first.request("createFirstWorkspace", name),
      metrics,
      readiness,
      stopAccepting,
      close,
    };
  } catch (error) {
    await close();
    throw error;
  }
}

/**
 * Supervises a worker: when its process exits unexpectedly, another replaces it. `opened` rejects if the first process
 * cannot open. A replacement that cannot open is restarted: the other workers still serve, and the resource that it
 * lacks may become available again.
 */
function superviseWorker(options: WorkerOptions, log: Log) {
  let current = forkWorker();
  let closing = false;
  // Counters continue from the values of the previous process. Prometheus would treat a smaller sum as a restart of all
  // workers, and count the values of the others again.
  let previousCounts: MetricsData = [];
  let lastRead: MetricsData = [];
  let reading: Promise<MetricsData> | undefined;

  const opened = new Promise<Addresses>((resolve, reject) => {
    let hasOpened = false;

    async function run(): Promise<void> {
      const addresses = await current.request("open", options);
      if (hasOpened) log.info({ worker: options.number, ...addresses }, "the worker was replaced");
      hasOpened = true;
      resolve(addresses);
      throw await current.ended;
    }

    async function superviseLoop(): Promise<void> {
      for (;;) {
        const pause = sleep(minRestartIntervalMs);
        const error = await run().catch((error: Error) => error);
        if (closing) return;
        // A signal is not a failure to open. Ctrl-C also reaches the workers, and the primary is about to close them.
        if (!hasOpened && !(error instanceof WorkerEnded && error.signal)) return reject(error);
        log.error(
          { worker: options.number, reason: error?.message },
          "a worker exited unexpectedly; starting a replacement",
        );
        await current.end();
        previousCounts = await combineCounts([previousCounts, lastRead]);
        lastRead = [];
        await pause;
        await replace();
        if (closing) return;
      }
    }

    /** Most failures to start a process are events of the worker. Others are thrown, such as that of too little memory. */
    async function replace(): Promise<void> {
      while (!closing) {
        try {
          current = forkWorker();
          return;
        } catch (error) {
          const reason = error instanceof Error ? error.message : `${error}`;
          log.error({ worker: options.number, reason }, "a worker cannot be started; trying again");
          await sleep(minRestartIntervalMs);
        }
      }
    }

    void superviseLoop();
  });

  /** Ignores a worker that has exited: there is nothing to stop. */
  async function stop(call: "stopAccepting" | "close"): Promise<void> {
    closing = true;
    await current.request(call).catch((error) => {
      if (!(error instanceof WorkerEnded)) throw error;
    });
  }

  return {
    opened,
    request: <Call extends keyof WorkerCalls>(call: Call, ...argument: Parameters<WorkerCalls[Call]>) =>
      current.request(call, ...argument),
    async readMetrics(): Promise<MetricsData[]> {
      // One at a time, so that requests do not accumulate for a worker that hangs.
      reading ??= current.request("readMetrics").finally(() => {
        reading = undefined;
      });
      // A worker that hangs, or has exited and is not replaced yet, contributes its last known counts.
      const read = await inTime(reading).catch(() => undefined);
      const before = lastRead;
      const latest = read ?? (await combineCounts([before]));
      // Meanwhile, another read may have got later counts, or the worker has ended and these are in previousCounts.
      if (lastRead === before) lastRead = latest;
      return [previousCounts, lastRead];
    },
    stopAccepting: () => inTime(stop("stopAccepting"), options.shutdownDelayMs + responseMs),
    /** Graceful: the worker finishes its calls in flight. Its process is killed if it takes too long. */
    async close(): Promise<void> {
      const killTimer = setTimeout(() => {
        log.error({ worker: options.number }, "a worker did not exit in time and is killed");
        current.kill();
      }, closeMs);
      try {
        await stop("close").finally(() => current.end());
      } finally {
        clearTimeout(killTimer);
      }
    },
  };
}

/** The response of a worker; undefined if it takes longer. */
function inTime<T>(response: Promise<T>, ms = responseMs): Promise<T | undefined> {
  return Promise.race([response, sleep(ms, undefined, { ref: false })]);
}

/** One worker process, from its fork to its exit. */
function forkWorker() {
  const worker = cluster.fork();
  const pending = new Map<number, (response: WorkerResponse | WorkerEnded) => void>();
  // Messages sent before the worker listens are lost. It sends a response with id 0 when it does.
  const listening = new Promise((settle) => pending.set(0, settle));
  let lastId = 0;
  let exit: WorkerEnded | undefined;

  const ended = new Promise<WorkerEnded>((resolve) => {
    worker.once("exit", (code, signal) => resolve(new WorkerEnded(code, signal)));
    // Sending to a process that has just exited fails too; its `exit` event covers that. A process that could not be
    // started has no `exit` event.
    worker.on("error", ({ message }) => worker.process.pid ?? resolve(new WorkerEnded(message, null)));
  });
  void ended.then((error) => {
    exit = error;
    for (const settle of pending.values()) settle(error);
  });
  worker.on("message", ({ id, ...response }: WorkerResponse & { id: number }) => {
    pending.get(id)?.(response);
    pending.delete(id);
  });

  return {
    ended,
    async request<Call extends keyof WorkerCalls>(
      call: Call,
      ...[argument]: Parameters<WorkerCalls[Call]>
    ): Promise<Awaited<ReturnType<WorkerCalls[Call]>>> {
      await listening;
      const id = ++lastId;
      const response =
        exit ??
        (await new Promise<WorkerResponse | WorkerEnded>((settle) => {
          pending.set(id, settle);
          worker.send({ id, call, argument } satisfies WorkerRequest, () => {});
        }));
      if (response instanceof WorkerEnded) throw response;
      if ("failure" in response) throw new (response.failure.userFacing ? UserError : Error)(response.failure.message);
      return response.value as Awaited<ReturnType<WorkerCalls[Call]>>;
    },
    /** Ends the process immediately: it exits when its IPC channel closes. */
    async end(): Promise<void> {
      if (worker.isConnected()) worker.process.disconnect();
      await ended;
    },
    kill: () => void worker.process.kill("SIGKILL"),
  };
}

/** The process of a worker has exited. */
class WorkerEnded extends Error {
  override readonly name = "WorkerEnded";
  readonly signal: string | null;

  constructor(code: number | string, signal: string | null) {
    super(`its process ${signal ? `was ended by ${signal}` : `exited with ${code}`}`);
    this.signal = signal;
  }
}
