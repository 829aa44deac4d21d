import { once } from "node:events";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Redis } from "ioredis";
import { launchNode } from "../../../commands/processes.js";
import { project } from "../../../commands/project.js";

/** A Redis of the tests, in its own process. */
export interface RedisServer {
  readonly url: string;
  /** A direct connection, without a proxy. Its timeout is short, because the server may be frozen. */
  readonly admin: Redis;
  freeze(): void;
  thaw(): void;
  kill(): Promise<void>;
}

/** Starts an empty Redis. */
export async function startRedis(): Promise<RedisServer> {
  const host = join(project, "test/verification/faults/redis-host.mjs");
  const folder = mkdtempSync(join(tmpdir(), "latchkey-redis-"));
  const program = [host, join(project, "dist/src/embedded/valkey.js"), folder];
  const launched = launchNode(program, { PATH: process.env["PATH"] });
  const output: string[] = [];
  for (const stream of [launched.child.stdout, launched.child.stderr]) {
    stream?.setEncoding("utf8").on("data", (text: string) => output.push(text) > 100 && output.shift());
  }
  const discard = () => rmSync(folder, { recursive: true, force: true });
  const failed = once(launched.child, "close").then(([code, signal]) => {
    discard();
    throw new Error(`Redis exited with ${signal ?? code} before it was ready: ${output.join("")}`);
  });
  const [message] = await Promise.race([once(launched.child, "message"), failed]);
  failed.catch(() => {}); // later exits are expected
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
