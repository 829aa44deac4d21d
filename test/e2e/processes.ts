import { spawnSync } from "node:child_process";
import { existsSync, readdirSync, readFileSync, readlinkSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";

/** A process of this machine, as it was when it was looked at. */
export interface Process {
  readonly pid: number;
  readonly parent: number;
  /** When it began, in the system's own words; tells two processes apart that had the same number one after the other. */
  readonly began: string;
  /** Its command line; empty for one that has ended and that nobody has asked about yet. */
  readonly command: string;
  /** Its working folder, where the system tells it. */
  readonly folder: string;
}

/** Between two looks. Looking at all processes costs a few milliseconds, which the service needs too. */
const pollMs = 40;

/** Asks until the answer is not undefined, and gives up in the end. */
export async function until<T>(what: string, ask: () => T | undefined | Promise<T | undefined>, ms = 60_000) {
  const deadline = Date.now() + ms;
  for (;;) {
    const answer = await ask();
    if (answer !== undefined) return answer;
    if (Date.now() > deadline) throw new Error(`waited ${ms} ms in vain: ${what}`);
    await sleep(pollMs);
  }
}

/** The processes that this one started, and those that they started, and so on. */
export function descendantsOf(ancestor: number): Process[] {
  const all = living();
  const family = new Set([ancestor]);
  // Children can have a lower number than their parent, so one pass is not enough.
  for (let before = 0; before < family.size; ) {
    before = family.size;
    for (const { pid, parent } of all) if (family.has(parent)) family.add(pid);
  }
  return all.filter(({ pid }) => family.has(pid) && pid !== ancestor);
}

/** The processes that work in this folder or below it, or that name it in their command line. */
export function processesIn(folder: string): Process[] {
  return living().filter((one) => mentions(one, folder));
}

/** Waits until these processes and all in the folder are gone, for half a minute; resolves to those that stay. */
export async function leftOf(family: readonly Process[], folder: string): Promise<string[]> {
  const deadline = Date.now() + 30_000;
  for (;;) {
    const left = living().filter((one) => mentions(one, folder) || family.some((member) => isSame(member, one)));
    if (left.length === 0 || Date.now() > deadline) return left.map(({ pid, command }) => `${pid} ${command}`);
    await sleep(pollMs);
  }
}

/** Ends these processes at once, unless their number has passed to others. */
export function kill(family: readonly Process[]): void {
  const all = living();
  for (const member of family) {
    if (all.some((one) => isSame(member, one))) sendKill(member.pid);
  }
}

function sendKill(pid: number): void {
  try {
    process.kill(pid, "SIGKILL");
  } catch {
    // It has ended by itself meanwhile.
  }
}

function isSame(one: Process, other: Process): boolean {
  return one.pid === other.pid && one.began === other.began;
}

function mentions({ command, folder }: Process, sought: string): boolean {
  return command.includes(sought) || folder === sought || folder.startsWith(`${sought}/`);
}

/** All processes that have not ended. One that only waits to be buried by its parent has. */
function living(): Process[] {
  return existsSync("/proc/self/stat") ? livingByProc() : livingByPs();
}

function livingByProc(): Process[] {
  return readdirSync("/proc").flatMap((name) => {
    if (!/^\d+$/.test(name)) return [];
    try {
      const stat = readFileSync(`/proc/${name}/stat`, "utf8");
      // The second field is the program's name in brackets, which may itself hold brackets and spaces.
      const [state, parent, ...rest] = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
      if (state === "Z" || state === "X") return [];
      const command = readFileSync(`/proc/${name}/cmdline`, "utf8").replaceAll("\0", " ").trim();
      return [{ pid: Number(name), parent: Number(parent), began: rest[17] ?? "", command, folder: folderOf(name) }];
    } catch {
      return []; // It ended while we looked.
    }
  });
}

function folderOf(pid: string): string {
  try {
    return readlinkSync(`/proc/${pid}/cwd`);
  } catch {
    return ""; // Another user's, which is not told.
  }
}

function livingByPs(): Process[] {
  const { stdout } = spawnSync("ps", ["-eo", "pid=,ppid=,stat=,lstart=,args="], { encoding: "utf8" });
  return stdout.split("\n").flatMap((line) => {
    const [, pid, parent, state, began, command] = /^\s*(\d+)\s+(\d+)\s+(\S+)\s+(.{24})\s+(.*)$/.exec(line) ?? [];
    if (pid === undefined || began === undefined || command === undefined || state?.startsWith("Z")) return [];
    return [{ pid: Number(pid), parent: Number(parent), began, command, folder: "" }];
  });
}
