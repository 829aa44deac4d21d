import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { openPostgres } from "../../src/embedded/postgres.js";
import { descendantsOf } from "../e2e/processes.js";

/** A PostgreSQL for one test file, which may stop, crash and change it. */
export interface OwnPostgres {
  readonly url: string;
  /** Like `pg_ctl restart -m`: `fast` ends sessions, `immediate` is a crash. */
  restart(mode: "fast" | "immediate"): Promise<void>;
  /** Stops it, runs a callback on its data folder, and starts it again. */
  whileStopped(act: (folder: string) => void): Promise<void>;
  /** Pauses all of its processes with SIGSTOP. */
  freeze(): void;
  thaw(): void;
  close(): Promise<void>;
}

/**
 * Acknowledged changes are durable, unless the machine itself crashes.
 *
 * @param settings as in postgresql.conf
 */
export async function openOwnPostgres(settings: Readonly<Record<string, string>> = {}): Promise<OwnPostgres> {
  const dataDir = mkdtempSync(join(tmpdir(), "latchkey-own-"));
  const backend = await openPostgres(dataDir, { fsync: "off", ...settings });
  let run = await backend.start();
  const pid = () => Number(readFileSync(join(dataDir, "postgres/postmaster.pid"), "utf8").split("\n")[0]);
  const signalAll = (signal: NodeJS.Signals) => {
    for (const one of [pid(), ...descendantsOf(pid()).map((child) => child.pid)]) process.kill(one, signal);
  };
  return {
    url: backend.url,
    async restart(mode) {
      process.kill(pid(), mode === "fast" ? "SIGINT" : "SIGQUIT");
      await run.ended;
      run = await backend.start();
    },
    async whileStopped(act) {
      process.kill(pid(), "SIGINT");
      await run.ended;
      act(join(dataDir, "postgres"));
      run = await backend.start();
    },
    freeze: () => signalAll("SIGSTOP"),
    thaw: () => signalAll("SIGCONT"),
    async close() {
      await run.stop();
      backend.discard();
      rmSync(dataDir, { recursive: true, force: true });
    },
  };
}
