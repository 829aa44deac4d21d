import { type ChildProcess, spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, rmSync } from "node:fs";
import { type AddressInfo, createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { Redis } from "ioredis";
import { expect, onTestFinished, type TestContext } from "vitest";
import { skipTest } from "./skip.js";

/** A Redis server of a test, in its own process. */
export interface RedisNode {
  readonly port: number;
  readonly url: string;
  /** A client for the test itself to read and change it. */
  readonly redis: Redis;
  /** Kills it with SIGKILL. */
  kill(): Promise<void>;
}

/** The path of an installed Redis server. Skips the test if there is none. */
export function findServer(context: TestContext): string {
  const found = ["valkey-server", "redis-server"].find((name) => spawnSync(name, ["--version"]).status === 0);
  return found ?? skipTest(context, "this machine has neither valkey-server nor redis-server");
}

/** How many ports are tried, since a free port may be taken before the server binds it. */
const maxPorts = 5;

/** Starts a server with these settings. It is killed with the test, or with the process that runs it. */
export async function startNode(program: string, settings: Record<string, string> = {}): Promise<RedisNode> {
  for (let ports = 1; ; ports++) {
    const node = await startAt(await freePort(), program, settings);
    if (typeof node !== "string") return node;
    if (!/address already in use/i.test(node) || ports === maxPorts) expect.fail(`${program} did not start: ${node}`);
  }
}

/** Resolves to the server's output if it exits before it responds. */
async function startAt(port: number, program: string, settings: Record<string, string>): Promise<RedisNode | string> {
  const folder = mkdtempSync(join(tmpdir(), "latchkey-redis-"));
  const all = { bind: "127.0.0.1", port: `${port}`, dir: folder, save: '""', appendonly: "no", ...settings };
  const child = spawn(program, ["-"], { stdio: ["pipe", "pipe", "pipe"] });
  const printed: string[] = [];
  for (const output of [child.stdout, child.stderr]) {
    output.setEncoding("utf8").on("data", (text: string) => printed.push(text) > 100 && printed.shift());
  }
  const lastResort = () => void child.kill("SIGKILL");
  process.once("exit", lastResort);
  const redis = new Redis(port, "127.0.0.1", { retryStrategy: () => 50, maxRetriesPerRequest: null });
  redis.on("error", () => {});
  const kill = () => end(child);
  onTestFinished(async () => {
    redis.disconnect();
    await kill();
    process.off("exit", lastResort);
    rmSync(folder, { recursive: true, force: true });
  });
  child.stdin.on("error", () => {}); // it exited at once, which is detected below
  child.stdin.end(
    Object.entries(all)
      .map((setting) => `${setting.join(" ")}\n`)
      .join(""),
  );
  const ended = once(child, "close").then(([code, signal]) => `it exited with ${signal ?? code}: ${printed.join("")}`);
  const failure = await Promise.race([answersItself(redis, child), ended]);
  return failure ?? { port, url: `redis://127.0.0.1:${port}`, redis, kill };
}

/** Waits until this process itself responds: another one may have taken the port in the meantime. */
async function answersItself(redis: Redis, { pid }: ChildProcess): Promise<undefined> {
  while (!(await redis.info("server")).includes(`process_id:${pid}\r\n`)) await sleep(50);
}

/** A currently free port on the loopback address. */
async function freePort(): Promise<number> {
  const server = createServer().listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address() as AddressInfo;
  server.close();
  await once(server, "close");
  return port;
}

/** The number of slots of a cluster. */
const slots = 16_384;

/** Starts nodes that share the slots of a cluster evenly, each with one contiguous range. */
export async function startCluster(program: string, size: number): Promise<RedisNode[]> {
  const settings = { "cluster-enabled": "yes", "cluster-node-timeout": "1000" };
  const nodes = await Promise.all(
    Array.from({ length: size }, async (_, index) => {
      const busPort = await freePort();
      const node = await startNode(program, { ...settings, "cluster-port": `${busPort}` });
      const [first, last] = [index, index + 1].map((part) => Math.ceil((part * slots) / size));
      await node.redis.call("CLUSTER", "ADDSLOTSRANGE", `${first}`, `${(last ?? 0) - 1}`);
      await node.redis.call("CLUSTER", "SET-CONFIG-EPOCH", `${index + 1}`);
      return { ...node, busPort };
    }),
  );
  const [first, ...rest] = nodes;
  for (const { port, busPort } of rest) {
    await first?.redis.call("CLUSTER", "MEET", "127.0.0.1", `${port}`, `${busPort}`);
  }
  for (const { redis } of nodes) {
    const info = async () => String(await redis.call("CLUSTER", "INFO"));
    await expect.poll(info, { timeout: 15_000 }).toContain("cluster_state:ok");
    await expect.poll(info, { timeout: 15_000 }).toContain(`cluster_known_nodes:${size}`);
  }
  return nodes;
}

async function end(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return;
  const ended = once(child, "exit");
  child.kill("SIGKILL");
  await ended;
}
