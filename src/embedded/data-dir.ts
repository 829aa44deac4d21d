import { accessSync, constants, existsSync, mkdirSync, statSync } from "node:fs";
import { dirname } from "node:path";
import { UserError } from "../errors.js";
import { refuseUnlessOurs } from "./private.js";

/** Makes the data folder, closed to others, unless it is there and can be used. */
export function makeDataDir(dataDir: string): void {
  try {
    makeFolders(dataDir);
    accessSync(dataDir, constants.W_OK);
  } catch (cause) {
    const { message } = cause as Error;
    throw new UserError(`DATA_DIR must be a folder that can be written to, and ${dataDir} is not: ${message}.`, {
      cause,
    });
  }
  refuseUnlessOurs(dataDir);
}

/** One after the other: on a file system where none can be made, as in /proc, Node's own `recursive` never returns. */
function makeFolders(folder: string): void {
  if (existsSync(folder)) {
    if (!statSync(folder).isDirectory()) throw new Error(`${folder} is not a folder`);
    return;
  }
  makeFolders(dirname(folder));
  try {
    mkdirSync(folder, { mode: 0o700 });
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "EEXIST") throw error; // else another start has made it meanwhile
  }
}
