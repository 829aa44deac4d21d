import { type ChildProcess, type SpawnOptions, spawn } from "node:child_process";
import { once } from "node:events";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { project } from "./project.js";

/** A Node process that a command has started, with its own child processes. Signals go to the whole group. */
export interface Launched {
  readonly child: ChildProcess;
  readonly ended: Promise<unknown>;
  freeze(): void;
  thaw(): void;
  /** Sends SIGKILL, like `kill -9`. */
  kill(): Promise<void>;
  /** Sends SIGTERM, and SIGKILL after the timeout, like a service manager. */
  stop(timeoutMs: number): Promise<void>;
}

/**
 * Launches a program with Node. It leads its own process group, so a terminal's Ctrl-C does not reach it. It ends when
 * this process ends, even if this process is killed.
 *
 * @param stderr the descriptor of a file for its stderr
 */
export function launchNode(
  program: readonly string[],
  env: NodeJS.ProcessEnv,
  stderr: "pipe" | number = "pipe",
): Launched {
  const endsWithParent = pathToFileURL(join(project, "commands/ends-with-parent.mjs")).href;
  const options: SpawnOptions = { env, detached: true, stdio: ["ignore", "pipe", stderr, "ipc"] };
  const child = spawn(process.execPath, ["--no-warnings", "--import", endsWithParent, ...program], options);
  const ended = once(child, "exit");
  const signal = (name: NodeJS.Signals) => {
    if (child.pid !== undefined && child.exitCode === null && child.signalCode === null) process.kill(-child.pid, name);
  };
  const kill = async () => {
    signal("SIGKILL");
    await ended;
  };
  return {
    child,
    ended,
    freeze: () => signal("SIGSTOP"),
    thaw: () => signal("SIGCONT"),
    kill,
    async stop(timeoutMs) {
      signal("SIGTERM");
      const killTimer = setTimeout(() => signal("SIGKILL"), timeoutMs);
      await ended;
      clearTimeout(killTimer);
    },
  };
}

/** Reads the banner that a service prints when it is ready. If it ends first, throws with its output and log. */
export async function readBanner({ child, ended }: Launched, log: () => string): Promise<string> {
  let banner = "";
  const ready = new AbortController();
  child.stdout?.setEncoding("utf8").on("data", (text) => {
    banner += text;
    if (banner.includes("Ctrl-C stops it.")) ready.abort();
  });
  await Promise.race([ended, once(ready.signal, "abort")]);
  if (!ready.signal.aborted) throw new Error(`the service did not start:\n${banner}${log()}`);
  return banner;
}
