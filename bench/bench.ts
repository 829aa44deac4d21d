import { randomUUID } from "node:crypto";
import { join } from "node:path";
import { openSql } from "../commands/open-sql.js";
import type { Backends } from "../src/embedded/start.js";
import type { Pace } from "./rounds.js";
import { type Server, type ServerOptions, startServer } from "./servers.js";

/** What a row has to work with. What is made by it ends with the row. */
export interface Bench {
  /** Asked to be short rather than exact. */
  readonly quick: boolean;
  readonly pace: Pace;
  /** Where files may be put. */
  readonly folder: string;
  readonly redisUrl: string;
  /** Says what is going on. */
  progress(text: string): void;
  /** A database of its own, empty, in the run's PostgreSQL. */
  createDatabase(): Promise<string>;
  startServer(options: Omit<ServerOptions, "logFile">): Promise<Server>;
  /** Does this when the row is over; what was asked for last is done first. */
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

/** Opens what one row works with. Close it when the row is over. */
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
