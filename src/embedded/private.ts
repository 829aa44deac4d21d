import { lstatSync, readlinkSync, realpathSync, type Stats, statSync } from "node:fs";
import { dirname, resolve } from "node:path";
import { UserError } from "../errors.js";

// A user who can write to the data folder can become the operator, and a user who can read a credential file is the
// operator. Such a folder or file is refused and not repaired, because its content may already come from that user.

/** Refuses a folder whose content other users can change, or which they can replace by another folder. */
export function assertPrivateFolder(folder: string): void {
  const stats = statSync(folder);
  assertOwned(folder, stats);
  if (stats.mode & 0o022) {
    throw new UserError(
      `Other users can write to ${folder} (DATA_DIR). Make sure that none of its files belong to them, and run: chmod go-w ${quoted(folder)}`,
    );
  }
  const user = process.geteuid?.();
  const isOfOther = (uid: number) => user !== undefined && uid !== user && uid !== 0;
  for (const [inner, outer] of entriesOf(resolve(folder))) {
    const { mode, uid } = statSync(outer);
    if (isOfOther(uid)) {
      throw new UserError(
        `${outer} belongs to user ${uid}, who can replace ${inner} (DATA_DIR) by another folder. Set DATA_DIR to a folder inside one of your own.`,
      );
    }
    // In a folder with the sticky bit, such as /tmp, only the owner of a file can rename it.
    if (mode & 0o002 && !(mode & 0o1000)) {
      throw new UserError(
        `Every user can write to ${outer}, and so replace ${inner} (DATA_DIR) by another folder. Run: chmod o-w ${quoted(outer)}`,
      );
    }
    const entry = lstatSync(inner);
    if (entry.isSymbolicLink() && isOfOther(entry.uid)) {
      throw new UserError(
        `The symbolic link ${inner} (DATA_DIR) belongs to user ${entry.uid}, who can let it lead to another folder. Set DATA_DIR to a path without this link.`,
      );
    }
  }
}

/** All folders and symbolic links that lead to a path, each with the folder that contains it. */
function* entriesOf(path: string): Generator<readonly [inner: string, outer: string]> {
  const outer = dirname(path);
  if (outer === path) return;
  yield* entriesOf(outer);
  yield [path, outer];
  if (lstatSync(path).isSymbolicLink()) yield* entriesOf(resolve(realpathSync(outer), readlinkSync(path)));
}

/** Refuses a secret file that other users can read, or that belongs to another user. */
export function assertPrivateFile(file: string): void {
  const stats = statSync(file);
  assertOwned(file, stats);
  if (stats.mode & 0o077) {
    throw new UserError(
      `Other users can read or write ${file} (DATA_DIR), which contains a credential. If they may have done so, remove the file, and start again. Otherwise run: chmod 600 ${quoted(file)}`,
    );
  }
}

function assertOwned(path: string, { uid }: Stats): void {
  const user = process.geteuid?.();
  if (user === undefined || uid === user) return;
  throw new UserError(
    `${path} (DATA_DIR) belongs to user ${uid}, and Latchkey runs as user ${user}. Run Latchkey as its owner. Or make sure that its content can be trusted, and run as root: chown ${user} ${quoted(path)}`,
  );
}

function quoted(path: string): string {
  return `'${path.replaceAll("'", `'\\''`)}'`;
}
