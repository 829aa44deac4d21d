import { fileURLToPath } from "node:url";
import type { Bench } from "./bench.js";
import type { Server } from "./servers.js";

/** Starts one of the baseline servers in baselines/. */
export async function startBaseline(
  bench: Bench,
  name: string,
  file: string,
  env: NodeJS.ProcessEnv,
): Promise<{ server: Server; port: number }> {
  const server = await bench.startServer({
    name,
    program: [fileURLToPath(new URL(`./baselines/${file}.js`, import.meta.url))],
    env,
    ready: /^ready on .+$/m,
  });
  return { server, port: portOf(server) };
}

/** The port of a server that prints `ready on` and its address. */
export function portOf({ banner }: Server): number {
  return Number(/^ready on .*:(\d+)$/m.exec(banner)?.[1]);
}
