import { fileURLToPath } from "node:url";
import type { Bench } from "./bench.js";
import type { Server } from "./servers.js";

/** Starts one of the servers that Latchkey is held against, of those in sides/. */
export async function startSide(
  bench: Bench,
  name: string,
  file: string,
  env: NodeJS.ProcessEnv,
): Promise<{ server: Server; port: number }> {
  const server = await bench.startServer({
    name,
    program: [fileURLToPath(new URL(`./sides/${file}.js`, import.meta.url))],
    env,
    ready: /^ready on .+$/m,
  });
  return { server, port: portOf(server) };
}

/** Where a server listens that says `ready on` its address. */
export function portOf({ banner }: Server): number {
  return Number(/^ready on .*:(\d+)$/m.exec(banner)?.[1]);
}
