import cluster from "node:cluster";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import type { App, AppOptions } from "../app.js";
import { UserError } from "../errors.js";
import { openMetricsServer } from "../http/metrics-server.js";
import type { Log, LogLevel } from "../observe/log.js";
import { combineCounts, combineMetrics, type Metrics, type MetricsData } from "../observe/metrics.js";
import { standardLimits } from "../overload/limits.js";

/** What the service is made from if several processes serve it. */
export interface ClusterOptions extends Omit<AppOptions, "guard" | "limits"> {
  readonly workers: number;
  readonly logLevel: LogLevel;
}

/** What one worker is made from. It has secrets in it, so it goes through the channel and not the command line. */
export interface WorkerOptions extends Omit<ClusterOptions, "workers" | "metricsPort" | "log"> {
  /** Which of the workers it is, counted from 1; the one that replaces it is the same. */
  readonly number: number;
}

/** What the primary asks of a worker. */
export interface WorkerCalls {
  open(options: WorkerOptions): Promise<Addresses>;
  createFirstWorkspace(name: string): ReturnType<App["createFirstWorkspace"]>;
  readMetrics(): Promise<MetricsData>;
  stopAccepting(): Promise<void>;
  close(): Promise<void>;
}

type Addresses = Pick<App, "httpUrl" | "grpcAddress">;

/** How a call goes through the channel. */
export interface WorkerRequest {
  readonly id: number;
  readonly call: keyof WorkerCalls;
  readonly argument: unknown;
}

export type WorkerResponse =
  | { readonly value: unknown }
  | { readonly failure: { readonly mendable: boolean; readonly message: string } };

/** Keeps a worker that ends as soon as it has started from keeping the machine busy. */
const leastBetweenStartsMs = 1_000;

/**
 * Opens the application in several processes on the same ports, so that it can use as many cores. Each is a replica:
 * they share nothing but the ports. Resolves when all of them serve.
 */
export async function openCluster({ workers, metricsPort, log, ...options }: ClusterOptions): Promise<App> {
  cluster.setupPrimary({ exec: fileURLToPath(new URL("./worker.js", import.meta.url)), args: [] });
  // Connections last, so how they are spread at first is how the load stays spread. By turns, 64 connections came to 32
  // and 32 for two workers, one after the other; left to the kernel (SCHED_NONE), to 8 and 56 or 48 and 16. The price, one
  // handing over, is paid by connection and not by call.
  cluster.schedulingPolicy = cluster.SCHED_RR;
  const first = keepWorker({ ...options, number: 1 }, log);
  const others = Array.from({ length: workers - 1 }, (_, index) => keepWorker({ ...options, number: index + 2 }, log));
  const all = [first, ...others];
  let metricsServer: Awaited<ReturnType<typeof openMetricsServer>> | undefined;

  async function metrics(): Promise<Metrics> {
    return combineMetrics((await Promise.all(all.map((worker) => worker.readMetrics()))).flat());
  }

  async function stopAccepting(): Promise<void> {
    await Promise.all(all.map((worker) => worker.stopAccepting()));
  }

  async function close(): Promise<void> {
    metricsServer?.close();
    // All of them first: a client that one sends away must not get to another that is about to stop accepting.
    await stopAccepting();
    await Promise.all(all.map((worker) => worker.close()));
  }

  try {
    await Promise.all(all.map(({ opened }) => opened));
    if (metricsPort !== undefined)
      metricsServer = await openMetricsServer(metrics, options.host, metricsPort, log, standardLimits);
    return {
      // Those of all others too: cluster gives all the same ports, even where each asks for a free one.
      ...(await first.opened),
      metricsUrl: metricsServer?.url,
      createFirstWorkspace: (name) => first.ask("createFirstWorkspace", name),
      metrics,
      stopAccepting,
      close,
    };
  } catch (error) {
    await close();
    throw error;
  }
}

/**
 * Keeps a worker running: when its process ends unexpectedly, another takes its place. `opened` rejects if the first one
 * cannot open. Later on, one that cannot open is tried again: the other workers still serve, and what it lacks may come
 * back.
 */
function keepWorker(options: WorkerOptions, log: Log) {
  let current = forkWorker();
  let closing = false;
  // Counts go on where the process before left off. Prometheus would take a smaller sum for a restart of all workers, and
  // count what the others have counted once more.
  let countedBefore: MetricsData = [];
  let lastRead: MetricsData = [];

  const opened = new Promise<Addresses>((resolve, reject) => {
    let hasOpened = false;

    async function run(): Promise<void> {
      const addresses = await current.ask("open", options);
      if (hasOpened) log.info({ worker: options.number, ...addresses }, "the worker is replaced");
      hasOpened = true;
      resolve(addresses);
      throw await current.ended;
    }

    async function keep(): Promise<void> {
      for (;;) {
        const pause = sleep(leastBetweenStartsMs);
        const error = await run().catch((error: Error) => error);
        if (closing) return;
        // A signal is no failure to open. At Ctrl-C, which reaches the workers too, we are about to be told to close.
        if (!hasOpened && !(error instanceof WorkerEnded && error.signal)) return reject(error);
        log.error({ worker: options.number, reason: error?.message }, "a worker is lost; another takes its place");
        await current.end();
        countedBefore = await combineCounts([countedBefore, lastRead]);
        lastRead = [];
        await pause;
        if (closing) return;
        current = forkWorker();
      }
    }

    void keep();
  });

  /** One that has ended has nothing left to stop. */
  async function stop(call: "stopAccepting" | "close"): Promise<void> {
    closing = true;
    await current.ask(call).catch((error) => {
      if (!(error instanceof WorkerEnded)) throw error;
    });
  }

  return {
    opened,
    ask: <Call extends keyof WorkerCalls>(call: Call, ...argument: Parameters<WorkerCalls[Call]>) =>
      current.ask(call, ...argument),
    async readMetrics(): Promise<MetricsData[]> {
      // One that has ended, and is not replaced yet, has what it had counted.
      lastRead = await current.ask("readMetrics").catch(() => combineCounts([lastRead]));
      return [countedBefore, lastRead];
    },
    stopAccepting: () => stop("stopAccepting"),
    /** Lets it finish its calls. */
    close: () => stop("close").finally(() => current.end()),
  };
}

/** A process that is one worker for as long as it lives. */
function forkWorker() {
  const worker = cluster.fork();
  const waiting = new Map<number, (answer: WorkerResponse | WorkerEnded) => void>();
  // What is sent before it listens is lost; it answers question 0 when it does.
  const listens = new Promise((settle) => waiting.set(0, settle));
  let asked = 0;
  let hasEnded: WorkerEnded | undefined;

  const ended = new Promise<WorkerEnded>((resolve) => {
    worker.once("exit", (code, signal) => resolve(new WorkerEnded(code, signal)));
    // Sending to a process that has just ended fails, of which its end tells. One that could not begin has no end.
    worker.on("error", ({ message }) => worker.process.pid ?? resolve(new WorkerEnded(message, null)));
  });
  void ended.then((end) => {
    hasEnded = end;
    for (const settle of waiting.values()) settle(end);
  });
  worker.on("message", ({ id, ...answer }: WorkerResponse & { id: number }) => {
    waiting.get(id)?.(answer);
    waiting.delete(id);
  });

  return {
    ended,
    async ask<Call extends keyof WorkerCalls>(
      call: Call,
      ...[argument]: Parameters<WorkerCalls[Call]>
    ): Promise<Awaited<ReturnType<WorkerCalls[Call]>>> {
      await listens;
      const id = ++asked;
      const answer =
        hasEnded ??
        (await new Promise<WorkerResponse | WorkerEnded>((settle) => {
          waiting.set(id, settle);
          worker.send({ id, call, argument } satisfies WorkerRequest, () => {});
        }));
      if (answer instanceof WorkerEnded) throw answer;
      if ("failure" in answer) throw new (answer.failure.mendable ? UserError : Error)(answer.failure.message);
      return answer.value as Awaited<ReturnType<WorkerCalls[Call]>>;
    },
    /** Ends it at once; its channel closes, and it goes. */
    async end(): Promise<void> {
      if (worker.isConnected()) worker.process.disconnect();
      await ended;
    },
  };
}

/** A worker's process is gone. */
class WorkerEnded extends Error {
  override readonly name = "WorkerEnded";
  readonly signal: string | null;

  constructor(code: number | string, signal: string | null) {
    super(`its process ended ${signal ? `by ${signal}` : `with ${code}`}`);
    this.signal = signal;
  }
}
