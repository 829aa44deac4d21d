import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { closeSync, ftruncateSync, openSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { project } from "../commands/project.js";
import { type Usage, usageOf } from "./usage.js";

/** A server under load: a process of its own. */
export interface Server {
  readonly name: string;
  /** What it wrote to stdout until it was ready. */
  readonly banner: string;
  /** What it has used so far, with all processes that it started. */
  usage(): Usage;
  /** Empties the file that its stderr goes to. */
  emptyLog(): void;
  stop(): Promise<void>;
}

export interface ServerOptions {
  readonly name: string;
  /** The file to run, and its arguments. */
  readonly program: readonly string[];
  readonly env: NodeJS.ProcessEnv;
  /** What it says on stdout when it is ready. */
  readonly ready: RegExp;
  /** Where its stderr goes: a file, as under a service manager, for which no process of ours has to work. */
  readonly logFile: string;
}

/** How long a start may take on a busy machine. */
const startMs = 60_000;

/** Starts a server and waits until it is ready. It ends with this process, however that comes about. */
export async function startServer({ name, program, env, ready, logFile }: ServerOptions): Promise<Server> {
  const endsWithParent = pathToFileURL(join(project, "commands/ends-with-parent.mjs")).href;
  const log = openSync(logFile, "a");
  const child = spawn(process.execPath, ["--import", endsWithParent, ...program], {
    env: { PATH: process.env["PATH"], NODE_ENV: "production", ...env },
    detached: true,
    stdio: ["ignore", "pipe", log, "ipc"],
  });
  const ended = once(child, "exit");

  async function stop(): Promise<void> {
    const { pid } = child;
    if (pid === undefined || child.exitCode !== null || child.signalCode !== null) return;
    process.kill(-pid, "SIGTERM");
    const impatience = setTimeout(() => process.kill(-pid, "SIGKILL"), 5_000);
    await ended;
    clearTimeout(impatience);
    closeSync(log);
  }

  const banner = await readBanner(child, ready, ended);
  if (banner.whole) {
    return {
      name,
      banner: banner.text,
      usage: () => usageOf(child.pid ?? 0),
      emptyLog: () => ftruncateSync(log),
      stop,
    };
  }
  await stop();
  throw new Error(`${name} did not start:\n${banner.text}${readFileSync(logFile, "utf8").slice(-4_000)}`);
}

async function readBanner(child: ChildProcess, ready: RegExp, ended: Promise<unknown>) {
  let text = "";
  const whole = new AbortController();
  child.stdout?.setEncoding("utf8").on("data", (more) => {
    text += more;
    if (ready.test(text)) whole.abort();
  });
  await Promise.race([ended, once(AbortSignal.any([AbortSignal.timeout(startMs), whole.signal]), "abort")]);
  return { text, whole: whole.signal.aborted };
}
