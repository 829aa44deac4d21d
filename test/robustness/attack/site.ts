import { randomUUID } from "node:crypto";
import { once } from "node:events";
import type { ClientHttp2Session, Settings } from "node:http2";
import { join } from "node:path";
import { openSql } from "../../../commands/open-sql.js";
import { project } from "../../../commands/project.js";
import { makeFolder } from "../../../commands/run-to-exit.js";
import { startBackends } from "../../../src/embedded/start.js";
import { openSession } from "../../support/clients/grpc-streams.js";
import { startTarget, type Target, type TargetOptions } from "./target.js";

/** The environment of the attacks: a PostgreSQL and a Redis. Each attack starts its own services with them. */
export interface AttackContext {
  /** A folder for temporary files. */
  readonly folder: string;
  /** The entry point of the service. */
  readonly program: string;
  /** Starts a service with a new, empty database. It is stopped at the end of the attack. */
  start(options?: TargetOptions): Promise<Target>;
  /** Adds a cleanup step for the end of the attack. */
  addCleanup(step: () => unknown): void;
  /** Runs the cleanup steps, the last one first. */
  runCleanups(): Promise<void>;
  close(): Promise<void>;
}

/** Opens a plain HTTP/2 connection to the gRPC port. It is closed at the end of the attack. */
export async function openAttackSession(
  context: AttackContext,
  { grpcAddress }: Target,
  settings: Settings = {},
): Promise<ClientHttp2Session> {
  const session = openSession(grpcAddress, settings);
  context.addCleanup(() => session.destroy());
  await Promise.race([once(session, "connect"), once(session, "close")]);
  return session;
}

export async function openAttackContext(): Promise<AttackContext> {
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

  async function runCleanups(): Promise<void> {
    const pending = steps;
    steps = [];
    for (const step of pending.reverse()) await step();
  }

  return {
    folder,
    program,
    async start(options = {}) {
      const target = await startTarget(program, await createDatabase(), backends.redisUrl, options);
      steps.push(target.stop);
      return target;
    },
    addCleanup: (step) => steps.push(step),
    runCleanups,
    async close() {
      await runCleanups();
      await admin.end();
      await backends.stop();
    },
  };
}
