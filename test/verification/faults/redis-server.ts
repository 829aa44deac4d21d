import { once } from "node:events";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Redis } from "ioredis";
import { launchNode } from "../../../commands/processes.js";
import { project } from "../../../commands/project.js";

/** A Redis of the laboratory, in a process of its own. */
export interface RedisServer {
  readonly url: string;
  /** A connection of our own, past every proxy. Gives up soon, since the server may be frozen. */
  readonly admin: Redis;
  freeze(): void;
  thaw(): void;
  kill(): Promise<void>;
}

/** Starts an empty one. */
export async function startRedis(): Promise<RedisServer> {
  const host = join(project, "test/verification/faults/redis-host.mjs");
  const folder = mkdtempSync(join(tmpdir(), "latchkey-redis-"));
  const program = [host, join(project, "dist/src/embedded/valkey.js"), folder];
  const launched = launchNode(program, { PATH: process.env["PATH"] });
  const said: string[] = [];
  for (const output of [launched.child.stdout, launched.child.stderr]) {
    output?.setEncoding("utf8").on("data", (text: string) => said.push(text) > 100 && said.shift());
  }
  const discard = () => rmSync(folder, { recursive: true, force: true });
  const failed = once(launched.child, "close").then(([code, signal]) => {
    discard();
    throw new Error(`a Redis of the laboratory ended with ${signal ?? code} before it answered: ${said.join("")}`);
  });
  const [message] = await Promise.race([once(launched.child, "message"), failed]);
  failed.catch(() => {}); // from now on it may end
  const { url } = message as { url: string };
  const admin = new Redis(url, { commandTimeout: 300, maxRetriesPerRequest: 0, retryStrategy: () => 100 });
  admin.on("error", () => {}); // the server is frozen or killed on purpose
  return {
    url,
    admin,
    freeze: launched.freeze,
    thaw: launched.thaw,
    async kill() {
      admin.disconnect();
      await launched.kill();
      discard();
    },
  };
}
