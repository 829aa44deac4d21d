import { randomUUID } from "node:crypto";
import { join } from "node:path";
import { openSql } from "../../../commands/open-sql.js";
import { project } from "../../../commands/project.js";
import { makeFolder } from "../../../commands/run-to-exit.js";
import { startBackends } from "../../../src/embedded/start.js";
import { startTarget, type Target, type TargetOptions } from "./target.js";

/** Where attacks take place: a PostgreSQL and a Redis, on which each attack starts services of its own. */
export interface Site {
  /** A folder for files of the attacks. */
  readonly folder: string;
  /** The program of the service. */
  readonly program: string;
  /** Starts a service with a new, empty database. It is stopped when the attack has ended. */
  start(options?: TargetOptions): Promise<Target>;
  /** Something to be undone when the attack has ended. */
  afterwards(step: () => unknown): void;
  /** Undoes what the attack has left. */
  endAttack(): Promise<void>;
  close(): Promise<void>;
}

export async function openSite(): Promise<Site> {
  const folder = makeFolder("attack");
  const program = join(project, "dist/src/main.js");
  const searchPath = process.env["PATH"] ?? "";
  const backends = await startBackends({
    dataDir: join(folder, "backends"),
    searchPath,
    withRedis: true,
    durable: false,
  });
  const admin = openSql(backends.databaseUrl, { max: 1, onnotice: () => {} });
  let steps: (() => unknown)[] = [];

  async function createDatabase(): Promise<string> {
    const name = `attack_${randomUUID().replaceAll("-", "")}`;
    await admin.unsafe(`create database ${name}`);
    const url = new URL(backends.databaseUrl);
    url.pathname = `/${name}`;
    return url.href;
  }

  async function endAttack(): Promise<void> {
    const undone = steps;
    steps = [];
    for (const step of undone.reverse()) await step();
  }

  return {
    folder,
    program,
    async start(options = {}) {
      const target = await startTarget(program, await createDatabase(), backends.redisUrl, options);
      steps.push(target.stop);
      return target;
    },
    afterwards: (step) => steps.push(step),
    endAttack,
    async close() {
      await endAttack();
      await admin.end();
      await backends.stop();
    },
  };
}
