// Chooses the user of the embedded PostgreSQL if the service runs as root. PostgreSQL refuses to run as root.

import { spawnSync } from "node:child_process";
import { randomInt } from "node:crypto";
import { chmodSync, chownSync, existsSync, lchownSync, lstatSync, readdirSync, readFileSync, statSync } from "node:fs";
import { join } from "node:path";
import { UserError } from "../errors.js";

/** A user id and a group id. */
export interface Owner {
  readonly uid: number;
  readonly gid: number;
}

/** `nobody`, the user of possibly many services of a system. */
const nobody = 65_534;

/**
 * Ranges of ids that no user has. No convention assigns the first range: system users, people, dynamic users,
 * containers and subordinate ids all use others. A container with no more than 65536 ids uses the second.
 */
const unassignedRanges = [
  { first: 1_900_000_000, count: 100_000_000 },
  { first: 20_000, count: 40_000 },
];

/**
 * Chooses the owner of a data folder: a user id that no account and no other process of the system has. An existing
 * folder keeps its owner, unless an account now has the same id.
 */
export function ownerFor(folder: string): Owner {
  const existing = existsSync(folder) ? statSync(folder) : undefined;
  if (existing && existing.uid !== 0 && !isAssigned(existing.uid)) return { uid: existing.uid, gid: existing.gid };
  const range = unassignedRanges.find(
    ({ first, count }) => isMapped("uid", first, count) && isMapped("gid", first, count),
  );
  if (range === undefined) {
    throw new UserError(
      "PostgreSQL does not run as root, and this system or container has no other user id for it. Run Latchkey as a regular user, or set DATABASE_URL to use another PostgreSQL.",
    );
  }
  const inUse = uidsInUse();
  for (;;) {
    const id = range.first + randomInt(range.count);
    if (!isAssigned(id) && !inUse.has(id)) return { uid: id, gid: id };
  }
}

/**
 * An account for initdb, which runs only as a user that has a name. The final owner of the data has no name. The
 * account has no login and no running process, so no other program can interfere.
 */
export function idleAccount(): Owner {
  const inUse = uidsInUse();
  const idle = accounts().find(({ uid, shell }) => uid !== 0 && /\/(nologin|false)$/.test(shell) && !inUse.has(uid));
  return idle === undefined ? { uid: nobody, gid: nobody } : { uid: idle.uid, gid: idle.gid };
}

/**
 * Changes the owner of a folder and its content, except files of root. Files with further hard links are skipped: they
 * may belong to another user, whom the previous owner attacks in this way. It can be repeated after an interruption.
 */
export function changeOwner(folder: string, { uid, gid }: Owner): void {
  // From here on, the previous owner cannot replace any file in the folder.
  chownSync(folder, 0, 0);
  chmodSync(folder, 0o700);
  // Folder by folder: `readdirSync` with `recursive` follows symbolic links, which may lead anywhere.
  for (const name of readdirSync(folder)) {
    const path = join(folder, name);
    const stats = lstatSync(path);
    if (stats.uid === 0) continue;
    if (stats.isDirectory()) changeOwner(path, { uid, gid });
    else if (stats.nlink === 1) lchownSync(path, uid, gid);
  }
  chownSync(folder, uid, gid);
}

function isAssigned(uid: number): boolean {
  if (uid === nobody || accounts().some((account) => account.uid === uid)) return true;
  // Accounts may also come from a directory service.
  return spawnSync("getent", ["passwd", `${uid}`], { stdio: "ignore", timeout: 10_000 }).status === 0;
}

function accounts(): (Owner & { readonly shell: string })[] {
  return linesOf("/etc/passwd").map((line) => {
    const [, , uid, gid, , , shell = ""] = line.split(":");
    return { uid: Number(uid), gid: Number(gid), shell };
  });
}

/** Whether the user namespace, for example of a container, has these ids at all. */
function isMapped(kind: "uid" | "gid", first: number, count: number): boolean {
  const ranges = linesOf(`/proc/self/${kind}_map`).map((line) => line.trim().split(/\s+/).map(Number));
  if (ranges.length === 0) return true;
  return ranges.some(([start = 0, , length = 0]) => start <= first && first + count <= start + length);
}

/** The user ids of all running processes. */
function uidsInUse(): Set<number> {
  const processes = existsSync("/proc") ? readdirSync("/proc").filter((name) => /^\d+$/.test(name)) : [];
  const uids = processes.flatMap((pid) =>
    linesOf(`/proc/${pid}/status`)
      .filter((line) => line.startsWith("Uid:"))
      .flatMap((line) => line.split(/\s+/).slice(1).map(Number)),
  );
  return new Set(uids);
}

/** Empty if the file cannot be read: the process has exited in the meantime, or the system has no such file. */
function linesOf(file: string): string[] {
  try {
    return readFileSync(file, "utf8").split("\n").filter(Boolean);
  } catch {
    return [];
  }
}
