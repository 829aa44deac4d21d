import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { TestProject } from "vitest/node";
import type { startBackends as StartBackends } from "../src/embedded/backends.js";

declare module "vitest" {
  interface ProvidedContext {
    databaseUrl: string;
    redisUrl: string;
  }
}

/** One private PostgreSQL and one private Redis for the whole run, gone afterwards. Nobody else's are touched. */
export default async function setup(project: TestProject): Promise<() => Promise<void>> {
  // The built file: it forks a process, which needs JavaScript. `npm test` builds first.
  const built = new URL("../dist/src/embedded/backends.js", import.meta.url).href;
  const { startBackends }: { startBackends: typeof StartBackends } = await import(built);
  const dataDir = mkdtempSync(join(tmpdir(), "latchkey-test-"));
  const searchPath = process.env["PATH"] ?? "";
  const backends = await startBackends({ dataDir, searchPath, withRedis: true, durable: false });
  project.provide("databaseUrl", backends.databaseUrl);
  project.provide("redisUrl", backends.redisUrl ?? "");
  return async () => {
    await backends.stop();
    rmSync(dataDir, { recursive: true, force: true });
  };
}
