// A process of its own that hosts the embedded backends. It ends when the process that forked it ends, however that
// came about: the channel between them closes. So not even kill -9 leaves a PostgreSQL behind.
import { Unusable } from "../unusable.js";
import type { Backend } from "./backend.js";
import type { BackendsOptions, HostMessage } from "./backends.js";
import { startPostgres } from "./postgres.js";
import { startValkey } from "./valkey.js";

const options: BackendsOptions = JSON.parse(process.argv[2] ?? "{}");
const running: Backend[] = [];
let stopping = false;

const started = start();
for (const event of ["disconnect", "SIGTERM", "SIGINT"]) process.once(event, stop);
for (const event of ["uncaughtException", "unhandledRejection"]) process.once(event, fail);
if (!process.connected) void stop(); // the channel closed while this file was loaded

async function start(): Promise<void> {
  try {
    const postgres = await startPostgres(options.dataDir, options.durable);
    running.push(postgres);
    const valkey = options.withRedis ? await startValkey(options.searchPath) : undefined;
    if (valkey) running.push(valkey);
    tell({ kind: "ready", databaseUrl: postgres.url, redisUrl: valkey?.url });
    for (const backend of running) backend.ended.then(stop);
  } catch (error) {
    fail(error);
  }
}

/** Whatever goes wrong here, PostgreSQL is not left behind. */
function fail(error: unknown): void {
  const message = error instanceof Error ? error.message : `${error}`;
  tell({ kind: "failed", mendable: error instanceof Unusable, message });
  void stop();
}

async function stop(): Promise<void> {
  if (stopping) return;
  stopping = true;
  await started;
  await Promise.all(running.map((backend) => backend.stop()));
  process.exit(0);
}

function tell(message: HostMessage): void {
  if (process.connected) process.send?.(message);
}
