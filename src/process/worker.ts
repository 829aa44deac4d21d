// The process of one worker: the whole application, on ports that all workers share. It performs the calls of the
// primary. It exits when the IPC channel between them closes, which Node's cluster ensures from the start. So even kill
// -9 of the primary leaves no worker behind.

import { type App, openApp } from "../app.js";
import { UserError } from "../errors.js";
import { createLog } from "../observe/log.js";
import type { WorkerCalls, WorkerRequest, WorkerResponse } from "./cluster.js";
import { configureGarbageCollector } from "./internals.js";

configureGarbageCollector();

let opening: Promise<App> = Promise.reject(new Error("the worker has not received its options"));
opening.catch(() => {});

const calls: WorkerCalls = {
  async open({ number, logLevel, ...options }) {
    const log = createLog(logLevel, { bindings: { worker: number } });
    opening = openApp({ ...options, metricsHost: options.host, metricsPort: undefined, log });
    const { httpUrl, grpcAddress } = await opening;
    return { httpUrl, grpcAddress };
  },
  createFirstWorkspace: async (name) => (await opening).createFirstWorkspace(name),
  readMetrics: async () => (await (await opening).metrics()).getMetricsAsJSON(),
  readiness: async () => (await opening).readiness().catch(() => undefined),
  // An application that could not be opened has closed itself.
  stopAccepting: async () => (await opening.catch(() => undefined))?.stopAccepting(),
  close: async () => (await opening.catch(() => undefined))?.close(),
};

// Ctrl-C reaches the whole process group, and service managers signal every process. The primary decides when to close.
for (const signal of ["SIGINT", "SIGTERM"]) process.on(signal, () => {});
process.on("message", async ({ id, call, argument }: WorkerRequest) => {
  const response = await perform(calls[call] as (argument: unknown) => Promise<unknown>, argument);
  process.send?.({ id, ...response });
});

process.send?.({ id: 0 });

async function perform(call: (argument: unknown) => Promise<unknown>, argument: unknown): Promise<WorkerResponse> {
  try {
    return { value: await call(argument) };
  } catch (error) {
    if (error instanceof UserError) return { failure: { userFacing: true, message: error.message } };
    return { failure: { userFacing: false, message: error instanceof Error ? `${error.stack}` : `${error}` } };
  }
}
