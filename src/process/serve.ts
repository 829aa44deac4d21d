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
import { configureGarbageCollector } from "./internals.js";

/** Runs the service until a signal arrives, then stops everything that it started. */
export async function serve(config: Config): Promise<void> {
  configureGarbageCollector();
  const shutdownSignal = onFirstStopSignal();
  const shutdownRequested = once(shutdownSignal, "abort");
  const log = createLog(config.logLevel);
  const credentials = createCredentials(config.dataDir);
  let backends: Backends | undefined;
  let app: App | undefined;
  try {
    if (config.tls) await readCertificates(config.tls); // fail early, before anything is started
    if (config.databaseUrl === undefined) {
      const { dataDir, searchPath } = config;
      const backendsOptions = { dataDir, searchPath, withRedis: config.redis === undefined, durable: true };
      backends = await startBackends(backendsOptions, log, shutdownSignal);
    }
    const options = {
      ...config,
      databaseUrl: config.databaseUrl ?? backends?.databaseUrl ?? "",
      redis: config.redis ?? (backends?.redisUrl ? { urls: [backends.redisUrl], cluster: false } : undefined),
      operators: config.operators.length > 0 ? config.operators : [credentials.operator()],
      log,
    };
    app = config.workers === 1 ? await openApp(options) : await openCluster(options);
    const newKey = backends && (await app.createFirstWorkspace("My first workspace"))?.key;
    if (newKey) credentials.storeFirstKey(newKey);
    const firstKeyFile = backends && credentials.hasFirstKey() ? credentials.firstKeyFile : undefined;
    // The key is printed only on a terminal. Other output is stored, in a journal or in the log of a container.
    const shownKey = process.stdout.isTTY ? newKey : undefined;
    process.stdout.write(banner({ ...credentials, config, app, firstKeyFile, shownKey }));

    await Promise.race([shutdownRequested, backends?.ended.then(backendsLost) ?? shutdownRequested]);
  } catch (error) {
    if (error !== shutdownSignal.reason) throw error; // else the shutdown came before the backends had started
  } finally {
    await app?.close();
    await backends?.stop();
  }
}

/**
 * Aborts at the first SIGINT or SIGTERM. A second one, more than a second later, exits immediately; the embedded
 * backends stop by themselves when this process is gone. The delay is needed because npm forwards Ctrl-C to a process
 * that has already received it from the terminal.
 */
function onFirstStopSignal(): AbortSignal {
  const shutdown = new AbortController();
  let firstSignalAt: number | undefined;
  for (const signal of ["SIGINT", "SIGTERM"] as const) {
    process.on(signal, () => {
      if (firstSignalAt !== undefined && performance.now() - firstSignalAt > 1_000) process.exit(130);
      firstSignalAt ??= performance.now();
      shutdown.abort();
    });
  }
  return shutdown.signal;
}

function backendsLost(): never {
  throw new UserError(
    "The process that supervises the embedded backends has ended, so Latchkey stops too. Start it again.",
  );
}
