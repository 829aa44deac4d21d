import { type ChildProcess, type SpawnOptions, spawn } from "node:child_process";
import { once } from "node:events";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { project } from "./project.js";

/** A Node process that a command has started, with whatever it starts itself: they live, freeze and die together. */
export interface Launched {
  readonly child: ChildProcess;
  readonly ended: Promise<unknown>;
  freeze(): void;
  thaw(): void;
  /** As `kill -9` does. */
  kill(): Promise<void>;
  /** As a service manager stops a service: with patience, but not without end. */
  stop(patienceMs: number): Promise<void>;
}

/**
 * Launches a program with Node. It leads a process group of its own, so that a terminal's Ctrl-C is for us alone, and ends
 * with this process, however that comes about.
 *
 * @param stderr a file that its stderr goes to
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
    async stop(patienceMs) {
      signal("SIGTERM");
      const impatience = setTimeout(() => signal("SIGKILL"), patienceMs);
      await ended;
      clearTimeout(impatience);
    },
  };
}

/** What a service prints when it is ready. Throws if it ends before, with what it has printed and logged. */
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
