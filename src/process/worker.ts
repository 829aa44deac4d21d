// A process of its own for one of several workers: the whole application, on ports that all workers share. It does what
// the primary asks of it. It ends when the channel between them closes, which Node's cluster sees to from the first
// moment on: so not even kill -9 of the primary leaves a worker behind.

import { type App, openApp } from "../app.js";
import { UserError } from "../errors.js";
import { createLog } from "../observe/log.js";
import type { WorkerCalls, WorkerRequest, WorkerResponse } from "./cluster.js";
import { limitHeapGrowth } from "./gc.js";

limitHeapGrowth();

let opening: Promise<App> = Promise.reject(new Error("the worker was not told to open"));
opening.catch(() => {});

const calls: WorkerCalls = {
  async open({ number, logLevel, ...options }) {
    opening = openApp({ ...options, metricsPort: undefined, log: createLog(logLevel).child({ worker: number }) });
    const { httpUrl, grpcAddress } = await opening;
    return { httpUrl, grpcAddress };
  },
  createFirstWorkspace: async (name) => (await opening).createFirstWorkspace(name),
  readMetrics: async () => (await (await opening).metrics()).getMetricsAsJSON(),
  // What could not be opened has closed itself.
  stopAccepting: async () => (await opening.catch(() => undefined))?.stopAccepting(),
  close: async () => (await opening.catch(() => undefined))?.close(),
};

// Ctrl-C reaches the whole process group, and service managers tell every process; the primary decides what follows.
for (const signal of ["SIGINT", "SIGTERM"]) process.on(signal, () => {});
process.on("message", async ({ id, call, argument }: WorkerRequest) => {
  const answer = await perform(calls[call] as (argument: unknown) => Promise<unknown>, argument);
  process.send?.({ id, ...answer });
});

process.send?.({ id: 0 });

async function perform(call: (argument: unknown) => Promise<unknown>, argument: unknown): Promise<WorkerResponse> {
  try {
    return { value: await call(argument) };
  } catch (error) {
    if (error instanceof UserError) return { failure: { mendable: true, message: error.message } };
    return { failure: { mendable: false, message: error instanceof Error ? `${error.stack}` : `${error}` } };
  }
}
