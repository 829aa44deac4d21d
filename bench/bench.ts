import { randomUUID } from "node:crypto";
import { join } from "node:path";
import { openSql } from "../commands/open-sql.js";
import type { Backends } from "../src/embedded/start.js";
import type { Pace } from "./rounds.js";
import { type Server, type ServerOptions, startServer } from "./servers.js";

/** The environment of one row. Everything a row creates through it is removed when the row ends. */
export interface Bench {
  /** Short rounds instead of exact figures. */
  readonly quick: boolean;
  readonly pace: Pace;
  /** A folder for temporary files. */
  readonly folder: string;
  readonly redisUrl: string;
  /** Reports progress. */
  progress(text: string): void;
  /** Creates an empty database in the PostgreSQL of this run. */
  createDatabase(): Promise<string>;
  startServer(options: Omit<ServerOptions, "logFile">): Promise<Server>;
  /** Runs a step when the row ends. Steps run in reverse order. */
  defer(step: () => unknown): void;
}

export interface BenchOptions {
  readonly quick: boolean;
  readonly pace: Pace;
  readonly folder: string;
  readonly backends: Pick<Backends, "databaseUrl" | "redisUrl">;
  readonly progress: (text: string) => void;
}

export const paces = {
  full: { warmUpSeconds: 5, roundSeconds: 4, pairs: 7 },
  quick: { warmUpSeconds: 1.5, roundSeconds: 0.5, pairs: 3 },
} satisfies Record<string, Pace>;

/** Opens the environment of one row. Close it when the row ends. */
export function openBench(options: BenchOptions): Bench & { close(): Promise<void> } {
  const { quick, pace, folder, backends, progress } = options;
  const steps: (() => unknown)[] = [];
  const bench: Bench = {
    quick,
    pace,
    folder,
    progress,
    redisUrl: backends.redisUrl ?? "",

    async createDatabase() {
      const name = `bench_${randomUUID().replaceAll("-", "")}`;
      const admin = openSql(backends.databaseUrl, { max: 1, onnotice: () => {} });
      bench.defer(() => admin.end());
      await admin.unsafe(`create database ${name}`);
      bench.defer(() => admin.unsafe(`drop database ${name} with (force)`));
      const url = new URL(backends.databaseUrl);
      url.pathname = `/${name}`;
      return url.href;
    },

    async startServer(options) {
      progress(`starting ${options.name}`);
      const server = await startServer({ ...options, logFile: join(folder, `${randomUUID()}.log`) });
      bench.defer(() => server.stop());
      return server;
    },

    defer: (step) => steps.push(step),
  };
  return {
    ...bench,
    async close() {
      for (const step of steps.splice(0).reverse()) await step();
    },
  };
}
