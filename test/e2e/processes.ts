import { spawnSync } from "node:child_process";
import { existsSync, readdirSync, readFileSync, readlinkSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";

/** A snapshot of a process of this machine. */
export interface Process {
  readonly pid: number;
  readonly parent: number;
  /** The start time as the system prints it. It distinguishes processes that had the same pid one after the other. */
  readonly began: string;
  /** Its command line; empty for a zombie. */
  readonly command: string;
  /** Its working directory, if the system shows it. */
  readonly folder: string;
}

/** Listing all processes costs a few milliseconds, which the service needs, too. */
const pollIntervalMs = 40;

/** Polls until the result is not undefined; throws after a timeout. */
export async function until<T>(what: string, check: () => T | undefined | Promise<T | undefined>, ms = 60_000) {
  const deadline = Date.now() + ms;
  for (;;) {
    const result = await check();
    if (result !== undefined) return result;
    if (Date.now() > deadline) throw new Error(`timeout after ${ms} ms: ${what}`);
    await sleep(pollIntervalMs);
  }
}

/** The processes that a process started, directly or indirectly. */
export function descendantsOf(ancestor: number): Process[] {
  const all = runningProcesses();
  const descendants = new Set([ancestor]);
  // Children can have a lower pid than their parent, so one pass is not enough.
  for (let before = 0; before < descendants.size; ) {
    before = descendants.size;
    for (const { pid, parent } of all) if (descendants.has(parent)) descendants.add(pid);
  }
  return all.filter(({ pid }) => descendants.has(pid) && pid !== ancestor);
}

/** The processes whose working directory is in this folder, or whose command line contains it. */
export function processesIn(folder: string): Process[] {
  return runningProcesses().filter((one) => mentions(one, folder));
}

/** Waits up to 30 s until these processes and all in the folder are gone; resolves to those that remain. */
export async function remainingProcesses(descendants: readonly Process[], folder: string): Promise<string[]> {
  const deadline = Date.now() + 30_000;
  for (;;) {
    const left = runningProcesses().filter(
      (one) => mentions(one, folder) || descendants.some((member) => isSame(member, one)),
    );
    if (left.length === 0 || Date.now() > deadline) return left.map(({ pid, command }) => `${pid} ${command}`);
    await sleep(pollIntervalMs);
  }
}

/** Kills these processes, unless another process has their pid by now. */
export function kill(descendants: readonly Process[]): void {
  const all = runningProcesses();
  for (const member of descendants) {
    if (all.some((one) => isSame(member, one))) sendKill(member.pid);
  }
}

function sendKill(pid: number): void {
  try {
    process.kill(pid, "SIGKILL");
  } catch {
    // The process has exited in the meantime.
  }
}

function isSame(one: Process, other: Process): boolean {
  return one.pid === other.pid && one.began === other.began;
}

function mentions({ command, folder }: Process, searched: string): boolean {
  return command.includes(searched) || folder === searched || folder.startsWith(`${searched}/`);
}

/**
 * Reads something in the folder of a process in /proc. Undefined if the process has exited: PostgreSQL has processes that run
 * only for a moment.
 */
export function ifRunning<T>(read: () => T): T | undefined {
  try {
    return read();
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code === "ENOENT" || code === "ESRCH") return undefined;
    throw error;
  }
}

/** All running processes, without zombies. */
function runningProcesses(): Process[] {
  return existsSync("/proc/self/stat") ? runningByProc() : runningByPs();
}

function runningByProc(): Process[] {
  return readdirSync("/proc").flatMap((name) => {
    if (!/^\d+$/.test(name)) return [];
    try {
      const stat = readFileSync(`/proc/${name}/stat`, "utf8");
      // The second field is the program's name in parentheses. The name itself may contain parentheses and spaces.
      const [state, parent, ...rest] = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
      if (state === "Z" || state === "X") return [];
      const command = readFileSync(`/proc/${name}/cmdline`, "utf8").replaceAll("\0", " ").trim();
      return [{ pid: Number(name), parent: Number(parent), began: rest[17] ?? "", command, folder: folderOf(name) }];
    } catch {
      return []; // The process has exited in the meantime.
    }
  });
}

function folderOf(pid: string): string {
  try {
    return readlinkSync(`/proc/${pid}/cwd`);
  } catch {
    return ""; // Not readable: a process of another user.
  }
}

function runningByPs(): Process[] {
  const { stdout } = spawnSync("ps", ["-eo", "pid=,ppid=,stat=,lstart=,args="], { encoding: "utf8" });
  return stdout.split("\n").flatMap((line) => {
    const [, pid, parent, state, began, command] = /^\s*(\d+)\s+(\d+)\s+(\S+)\s+(.{24})\s+(.*)$/.exec(line) ?? [];
    if (pid === undefined || began === undefined || command === undefined || state?.startsWith("Z")) return [];
    return [{ pid: Number(pid), parent: Number(parent), began, command, folder: "" }];
  });
}
