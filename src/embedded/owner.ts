// As whom the embedded PostgreSQL runs when the service runs as root, which PostgreSQL itself refuses to do.

import { spawnSync } from "node:child_process";
import { randomInt } from "node:crypto";
import { chmodSync, chownSync, existsSync, lchownSync, lstatSync, readdirSync, readFileSync, statSync } from "node:fs";
import { join } from "node:path";
import { UserError } from "../errors.js";

/** A user and group of the system, by number. */
export interface Owner {
  readonly uid: number;
  readonly gid: number;
}

/** `nobody`, as whom many services of a system may run. */
const nobody = 65_534;

/**
 * Where numbers are that no user has. No convention assigns the first: system users, people, dynamic users, containers and
 * subordinate ids all lie elsewhere. In a container that has no more than 65536 numbers, the second is left.
 */
const unassigned = [
  { first: 1_900_000_000, count: 100_000_000 },
  { first: 20_000, count: 40_000 },
];

/**
 * Whose the data of a folder is to be: somebody whom no account and no other process of the system is. The owner of a
 * folder that is there is kept, unless it has become somebody else's, too.
 */
export function ownerFor(folder: string): Owner {
  const present = existsSync(folder) ? statSync(folder) : undefined;
  if (present && present.uid !== 0 && !isAssigned(present.uid)) return { uid: present.uid, gid: present.gid };
  const range = unassigned.find(({ first, count }) => isMapped("uid", first, count) && isMapped("gid", first, count));
  if (range === undefined) {
    throw new UserError(
      "PostgreSQL does not run as root, and this system or container has no other user id for it. Run Latchkey as an ordinary user, or set DATABASE_URL to use another PostgreSQL.",
    );
  }
  const inUse = uidsInUse();
  for (;;) {
    const number = range.first + randomInt(range.count);
    if (!isAssigned(number) && !inUse.has(number)) return { uid: number, gid: number };
  }
}

/**
 * An account for initdb, which only runs as a user that has a name, unlike the one that its work is then handed over to.
 * Nobody can log in to it and none of its processes runs, so that nobody is there to interfere.
 */
export function idleAccount(): Owner {
  const inUse = uidsInUse();
  const idle = accounts().find(({ uid, shell }) => uid !== 0 && /\/(nologin|false)$/.test(shell) && !inUse.has(uid));
  return idle === undefined ? { uid: nobody, gid: nobody } : { uid: idle.uid, gid: idle.gid };
}

/**
 * Gives a folder with all that is in it to another owner, except what is root's. A file that has a name elsewhere, too, may
 * be another user's, whom its owner until now wants to harm: it is left alone. Can be repeated if it was cut off.
 */
export function handOver(folder: string, { uid, gid }: Owner): void {
  // From now on, its owner until now cannot put anything else in the place of what is to be handed over.
  chownSync(folder, 0, 0);
  chmodSync(folder, 0o700);
  // Folder by folder: \`readdirSync\` with \`recursive\` goes on behind links, which lead anywhere.
  for (const name of readdirSync(folder)) {
    const path = join(folder, name);
    const found = lstatSync(path);
    if (found.uid === 0) continue;
    if (found.isDirectory()) handOver(path, { uid, gid });
    else if (found.nlink === 1) lchownSync(path, uid, gid);
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

/** Whether a container, or any other namespace of users, has these numbers at all. */
function isMapped(kind: "uid" | "gid", first: number, count: number): boolean {
  const ranges = linesOf(`/proc/self/${kind}_map`).map((line) => line.trim().split(/\s+/).map(Number));
  if (ranges.length === 0) return true;
  return ranges.some(([start = 0, , length = 0]) => start <= first && first + count <= start + length);
}

/** As whom processes run at this moment. */
function uidsInUse(): Set<number> {
  const processes = existsSync("/proc") ? readdirSync("/proc").filter((name) => /^\d+$/.test(name)) : [];
  const uids = processes.flatMap((pid) =>
    linesOf(`/proc/${pid}/status`)
      .filter((line) => line.startsWith("Uid:"))
      .flatMap((line) => line.split(/\s+/).slice(1).map(Number)),
  );
  return new Set(uids);
}

/** None, if it cannot be read: such a process has ended meanwhile, and not every system has these files. */
function linesOf(file: string): string[] {
  try {
    return readFileSync(file, "utf8").split("\n").filter(Boolean);
  } catch {
    return [];
  }
}
