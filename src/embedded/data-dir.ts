import { accessSync, constants, mkdirSync } from "node:fs";
import { Unusable } from "../unusable.js";

/** Makes the data folder, closed to others, unless it is there and can be used. */
export function makeDataDir(dataDir: string): void {
  try {
    mkdirSync(dataDir, { recursive: true, mode: 0o700 });
    accessSync(dataDir, constants.W_OK);
  } catch (cause) {
    const { message } = cause as Error;
    throw new Unusable(`DATA_DIR must be a folder that can be written to, and ${dataDir} is not: ${message}.`, {
      cause,
    });
  }
}
