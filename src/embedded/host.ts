// A process of its own that hosts the embedded backends. It ends when the process that forked it ends, however that
// came about: the channel between them closes. So not even kill -9 leaves a PostgreSQL behind.
import { UserError } from "../errors.js";
import type { Backend } from "./backend.js";
import { endWithParent } from "./end-with-parent.js";
import { nonDurable, openPostgres } from "./postgres.js";
import { type BackendsOptions, type HostMessage, signOfLifeMs } from "./start.js";
import { supervise } from "./supervisor.js";
import { openValkey } from "./valkey.js";

const options: BackendsOptions = JSON.parse(process.argv[2] ?? "{}");
const undo: (() => unknown)[] = [];
const stopping = new AbortController();

endWithParent();
const signsOfLife = setInterval(() => tell({ kind: "starting" }), signOfLifeMs).unref();
const started = start();
for (const event of ["disconnect", "SIGTERM", "SIGINT"]) process.once(event, stop);
for (const event of ["uncaughtException", "unhandledRejection"]) process.once(event, fail);
if (!process.connected) void stop(); // the channel closed while this file was loaded

async function start(): Promise<void> {
  try {
    const { dataDir, searchPath, withRedis, durable } = options;
    const databaseUrl = await bringUp(await openPostgres(dataDir, durable ? {} : nonDurable, stopping.signal));
    const redisUrl = withRedis ? await bringUp(await openValkey(dataDir, searchPath)) : undefined;
    clearInterval(signsOfLife);
    tell({ kind: "ready", databaseUrl, redisUrl });
  } catch (error) {
    fail(error);
  }
}

async function bringUp(backend: Backend): Promise<string> {
  undo.push(backend.discard);
  const kept = await supervise(backend, tell, stopping.signal);
  undo.push(kept.stop);
  return backend.url;
}

/** Whatever goes wrong here, PostgreSQL is not left behind. */
function fail(error: unknown): void {
  const message = error instanceof Error ? error.message : `${error}`;
  tell({ kind: "failed", mendable: error instanceof UserError, message });
  void stop();
}

async function stop(): Promise<void> {
  if (stopping.signal.aborted) return;
  stopping.abort();
  await started;
  for (const step of undo.reverse()) await step();
  process.exit(0);
}

function tell(message: HostMessage): void {
  if (process.connected) process.send?.(message);
}
