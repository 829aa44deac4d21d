import { once } from "node:events";
import { closeSync, openSync, readFileSync, truncateSync } from "node:fs";
import { type Launched, launchNode } from "../commands/processes.js";
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
  const log = openSync(logFile, "a");
  const launched = launchNode(program, { PATH: process.env["PATH"], NODE_ENV: "production", ...env }, log);
  closeSync(log); // the server has it open
  const stop = () => launched.stop(5_000);

  const banner = await readBanner(launched, ready);
  if (banner.whole) {
    return {
      name,
      banner: banner.text,
      usage: () => usageOf(launched.child.pid ?? 0),
      emptyLog: () => truncateSync(logFile),
      stop,
    };
  }
  await stop();
  throw new Error(`${name} did not start:\n${banner.text}${readFileSync(logFile, "utf8").slice(-4_000)}`);
}

async function readBanner({ child, ended }: Launched, ready: RegExp) {
  let text = "";
  const whole = new AbortController();
  child.stdout?.setEncoding("utf8").on("data", (more) => {
    text += more;
    if (ready.test(text)) whole.abort();
  });
  await Promise.race([ended, once(AbortSignal.any([AbortSignal.timeout(startMs), whole.signal]), "abort")]);
  return { text, whole: whole.signal.aborted };
}
