import { realpathSync, type Stats, statSync } from "node:fs";
import { dirname } from "node:path";
import { UserError } from "../errors.js";

// Who can write in the data folder can make themselves the operator, and who can read a credential file is the operator.
// Such a folder or file is refused and not repaired: what is in it may be theirs already.

/** Refuses a folder in which other users can change something, or which they can exchange for another. */
export function refuseUnlessOurs(folder: string): void {
  const found = statSync(folder);
  refuseIfOwnedByOthers(folder, found);
  if (found.mode & 0o022) {
    throw new UserError(
      `Other users can write to ${folder} (DATA_DIR). Make sure that nothing in it is theirs, and run: chmod go-w ${quoted(folder)}`,
    );
  }
  for (let inner = realpathSync(folder); inner !== dirname(inner); inner = dirname(inner)) {
    const outer = dirname(inner);
    const { mode, uid } = statSync(outer);
    const user = process.geteuid?.();
    if (user !== undefined && uid !== user && uid !== 0) {
      throw new UserError(
        `${outer} belongs to user ${uid}, who can exchange ${inner} (DATA_DIR) for another folder. Set DATA_DIR to a folder below one of your own.`,
      );
    }
    // In a folder with the sticky bit, as /tmp has it, only the owner of a file can rename it.
    if (mode & 0o002 && !(mode & 0o1000)) {
      throw new UserError(
        `Every user can write to ${outer}, and so exchange ${inner} (DATA_DIR) for another folder. Run: chmod o-w ${quoted(outer)}`,
      );
    }
  }
}

/** Refuses a file with a secret that other users can read, or that comes from one of them. */
export function refuseUnlessSecret(file: string): void {
  const found = statSync(file);
  refuseIfOwnedByOthers(file, found);
  if (found.mode & 0o077) {
    throw new UserError(
      `Other users can read or write ${file} (DATA_DIR), which holds a credential. If they may have done so, remove the file, and start again. Else run: chmod 600 ${quoted(file)}`,
    );
  }
}

function refuseIfOwnedByOthers(path: string, { uid }: Stats): void {
  const user = process.geteuid?.();
  if (user === undefined || uid === user) return;
  throw new UserError(
    `${path} (DATA_DIR) belongs to user ${uid}, and Latchkey runs as user ${user}. Run Latchkey as its owner; or make sure that its content can be trusted, and run as root: chown ${user} ${quoted(path)}`,
  );
}

function quoted(path: string): string {
  return `'${path.replaceAll("'", `'\\''`)}'`;
}
