import { closeSync, constants, openSync } from "node:fs";
import { join } from "node:path";
import { UserError } from "../errors.js";

/** A folder with a socket, under a name by which every process of this user can connect to it. */
export interface SocketFolder {
  readonly path: string;
  close(): void;
}

/** The path of a socket may have 107 bytes on Linux and 103 on macOS. A longer one would be cut off without a word. */
const longestPath = 103;

/**
 * Opens a folder for connections to a socket in it, however long its own path is. A path that is too long is replaced by
 * the name that Linux gives to a folder which this process has open; it holds for as long as this process runs.
 */
export function openSocketFolder(folder: string, socket: string): SocketFolder {
  if (Buffer.byteLength(join(folder, socket)) <= longestPath) return { path: folder, close: () => {} };
  if (process.platform !== "linux") {
    const limit = `DATA_DIR must be a folder with a shorter path: ${join(folder, socket)} is longer than ${longestPath}`;
    throw new UserError(`${limit} bytes, the most that this system allows for a socket.`);
  }
  const descriptor = openSync(folder, constants.O_RDONLY | constants.O_DIRECTORY);
  return { path: `/proc/${process.pid}/fd/${descriptor}`, close: () => closeSync(descriptor) };
}
