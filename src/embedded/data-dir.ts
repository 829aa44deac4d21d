import { accessSync, closeSync, constants, existsSync, fsyncSync, mkdirSync, openSync, statSync } from "node:fs";
import { dirname } from "node:path";
import { UserError } from "../errors.js";
import { assertPrivateFolder } from "./private.js";

/** Creates the data folder, accessible only to its owner, unless a usable one exists. */
export function makeDataDir(dataDir: string): void {
  try {
    makeFolders(dataDir);
    accessSync(dataDir, constants.W_OK);
  } catch (cause) {
    const { message } = cause as Error;
    throw new UserError(`DATA_DIR must be a writable folder, and ${dataDir} is not: ${message}.`, {
      cause,
    });
  }
  assertPrivateFolder(dataDir);
}

/** Waits until the disk has the entries of a folder, such as a new or a renamed file. Some file systems cannot do that. */
export function syncFolder(folder: string): void {
  const descriptor = openSync(folder, constants.O_RDONLY);
  try {
    fsyncSync(descriptor);
  } catch (error) {
    if (!["EINVAL", "EBADF"].includes((error as NodeJS.ErrnoException).code ?? "")) throw error;
  } finally {
    closeSync(descriptor);
  }
}

/**
 * Creates one folder after the other: where no folder can be created, as in /proc, Node's `recursive` never returns.
 */
function makeFolders(folder: string): void {
  if (existsSync(folder)) {
    if (!statSync(folder).isDirectory()) throw new Error(`${folder} is not a folder`);
    return;
  }
  makeFolders(dirname(folder));
  try {
    mkdirSync(folder, { mode: 0o700 });
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "EEXIST") throw error; // else a concurrent start has created it
  }
}
