import { once } from "node:events";
import { join } from "node:path";
import { Redis } from "ioredis";
import { launchNode } from "../../commands/processes.js";
import { project } from "../../commands/project.js";

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
  const host = join(project, "test/faults/redis-host.mjs");
  const launched = launchNode([host, join(project, "dist/src/embedded/valkey.js")], { PATH: process.env["PATH"] });
  launched.child.stdout?.resume();
  launched.child.stderr?.resume();
  const [message] = await Promise.race([once(launched.child, "message"), launched.ended.then(refuse)]);
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
    },
  };
}

function refuse(): never {
  throw new Error("a Redis of the laboratory did not start");
}
