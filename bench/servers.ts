import { once } from "node:events";
import { closeSync, openSync, readFileSync, truncateSync } from "node:fs";
import { type Launched, launchNode } from "../commands/processes.js";
import { type Usage, usageOf } from "./usage.js";

/** A server under load, in a separate process. */
export interface Server {
  readonly name: string;
  /** Its stdout until it was ready. */
  readonly banner: string;
  /** CPU time and memory of the server and all its child processes. */
  usage(): Usage;
  /** Truncates the file that its stderr goes to. */
  emptyLog(): void;
  stop(): Promise<void>;
}

export interface ServerOptions {
  readonly name: string;
  /** The file to run, and its arguments. */
  readonly program: readonly string[];
  readonly env: NodeJS.ProcessEnv;
  /** Matches its stdout once it is ready. */
  readonly ready: RegExp;
  /** The file for its stderr, as under a service manager. A pipe would cost the benchmark CPU time to read it. */
  readonly logFile: string;
}

/** Maximum time for a start on a busy machine. */
const startTimeoutMs = 60_000;

/** Starts a server and waits until it is ready. The server ends when this process ends, even if it is killed. */
export async function startServer({ name, program, env, ready, logFile }: ServerOptions): Promise<Server> {
  const log = openSync(logFile, "a");
  const launched = launchNode(program, { PATH: process.env["PATH"], NODE_ENV: "production", ...env }, log);
  closeSync(log); // the server has it open
  const stop = () => launched.stop(5_000);

  const banner = await readBanner(launched, ready);
  if (banner.complete) {
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
  const complete = new AbortController();
  child.stdout?.setEncoding("utf8").on("data", (chunk) => {
    text += chunk;
    if (ready.test(text)) complete.abort();
  });
  await Promise.race([ended, once(AbortSignal.any([AbortSignal.timeout(startTimeoutMs), complete.signal]), "abort")]);
  return { text, complete: complete.signal.aborted };
}
