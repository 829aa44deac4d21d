// The process that hosts the embedded backends. It exits when the process that forked it exits for any reason, because
// the IPC channel between them closes. So even kill -9 leaves no PostgreSQL behind.
import { UserError } from "../errors.js";
import type { Backend } from "./backend.js";
import { endWithParent } from "./end-with-parent.js";
import { nonDurable, openPostgres } from "./postgres.js";
import { type BackendsOptions, type HostMessage, heartbeatIntervalMs } from "./start.js";
import { supervise } from "./supervisor.js";
import { openValkey } from "./valkey.js";

const options: BackendsOptions = JSON.parse(process.argv[2] ?? "{}");
const cleanup: (() => unknown)[] = [];
const stopping = new AbortController();

endWithParent();
const heartbeat = setInterval(() => send({ kind: "starting" }), heartbeatIntervalMs).unref();
const started = start();
for (const event of ["disconnect", "SIGTERM", "SIGINT"]) process.once(event, stop);
for (const event of ["uncaughtException", "unhandledRejection"]) process.once(event, fail);
if (!process.connected) void stop(); // the channel closed while this file was loading

async function start(): Promise<void> {
  try {
    const { dataDir, searchPath, withRedis, durable } = options;
    const databaseUrl = await startBackend(await openPostgres(dataDir, durable ? {} : nonDurable, stopping.signal));
    const redisUrl = withRedis ? await startBackend(await openValkey(dataDir, searchPath)) : undefined;
    clearInterval(heartbeat);
    send({ kind: "ready", databaseUrl, redisUrl });
  } catch (error) {
    fail(error);
  }
}

async function startBackend(backend: Backend): Promise<string> {
  cleanup.push(backend.discard);
  const supervised = await supervise(backend, send, stopping.signal);
  cleanup.push(supervised.stop);
  return backend.url;
}

/** Stops the backends after any error, so that no PostgreSQL is left behind. */
function fail(error: unknown): void {
  const message = error instanceof Error ? error.message : `${error}`;
  send({ kind: "failed", userFacing: error instanceof UserError, message });
  void stop();
}

async function stop(): Promise<void> {
  if (stopping.signal.aborted) return;
  stopping.abort();
  await started;
  for (const step of cleanup.reverse()) await step();
  process.exit(0);
}

function send(message: HostMessage): void {
  if (process.connected) process.send?.(message);
}
