import { once } from "node:events";
import { type App, openApp } from "../app.js";
import type { Config } from "../config.js";
import { type Backends, startBackends } from "../embedded/start.js";
import { UserError } from "../errors.js";
import { readCertificates } from "../net/certificates.js";
import { createLog } from "../observe/log.js";
import { banner } from "./banner.js";
import { createCredentials } from "./bootstrap-credentials.js";
import { openCluster } from "./cluster.js";
import { limitHeapGrowth } from "./gc.js";

/** Runs the service until it is told to stop, then stops all that it started. */
export async function serve(config: Config): Promise<void> {
  limitHeapGrowth();
  const stopping = firstStopSignal();
  const toldToStop = once(stopping, "abort");
  const log = createLog(config.logLevel);
  const credentials = createCredentials(config.dataDir);
  let backends: Backends | undefined;
  let app: App | undefined;
  try {
    if (config.tls) await readCertificates(config.tls); // a mistake in them is told before anything is started
    if (config.databaseUrl === undefined) {
      const { dataDir, searchPath } = config;
      const wanted = { dataDir, searchPath, withRedis: config.redis === undefined, durable: true };
      backends = await startBackends(wanted, log, stopping);
    }
    const options = {
      ...config,
      databaseUrl: config.databaseUrl ?? backends?.databaseUrl ?? "",
      redis: config.redis ?? (backends?.redisUrl ? { urls: [backends.redisUrl], cluster: false } : undefined),
      operatorKey: config.operatorKey ?? credentials.operatorKey(),
      log,
    };
    app = config.workers === 1 ? await openApp(options) : await openCluster(options);
    const newKey = backends && (await app.createFirstWorkspace("My first workspace"))?.key;
    if (newKey) credentials.keepFirstKey(newKey);
    const firstKeyFile = backends && credentials.hasFirstKey() ? credentials.firstKeyFile : undefined;
    // Elsewhere than on a terminal, what is printed is kept: in a journal, or in the log of a container.
    const shownKey = process.stdout.isTTY ? newKey : undefined;
    process.stdout.write(banner({ ...credentials, config, app, firstKeyFile, shownKey }));

    await Promise.race([toldToStop, backends?.ended.then(backendsLost) ?? toldToStop]);
  } catch (error) {
    if (error !== stopping.reason) throw error; // else it was told to stop before the backends had started
  } finally {
    await app?.close();
    await backends?.stop();
  }
}

/**
 * Aborts at the first signal to stop. Another one, later, does not wait; the embedded backends stop by themselves when
 * this process is gone. "Later", because npm passes Ctrl-C on to a process that the terminal has already told.
 */
function firstStopSignal(): AbortSignal {
  const stopping = new AbortController();
  let toldAt: number | undefined;
  for (const signal of ["SIGINT", "SIGTERM"] as const) {
    process.on(signal, () => {
      if (toldAt !== undefined && Date.now() - toldAt > 1_000) process.exit(130);
      toldAt ??= Date.now();
      stopping.abort();
    });
  }
  return stopping.signal;
}

function backendsLost(): never {
  throw new UserError(
    "The process that keeps the embedded backends running was ended, so Latchkey stops too. Start it again.",
  );
}
