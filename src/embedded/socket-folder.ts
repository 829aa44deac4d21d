import { closeSync, constants, openSync } from "node:fs";
import { join } from "node:path";
import { UserError } from "../errors.js";

/** A folder with a Unix socket, by a path that every process of this user can connect to. */
export interface SocketFolder {
  readonly path: string;
  close(): void;
}

/** The path of a socket may have 107 bytes on Linux and 103 on macOS. A longer one would be silently truncated. */
const maxPathBytes = 103;

/**
 * Opens a folder for connections to a socket in it, for a path of any length. A path that is too long is replaced by
 * the /proc path of the folder's file descriptor in this process. That path is valid for as long as this process runs.
 */
export function openSocketFolder(folder: string, socket: string): SocketFolder {
  if (Buffer.byteLength(join(folder, socket)) <= maxPathBytes) return { path: folder, close: () => {} };
  if (process.platform !== "linux") {
    const limit = `DATA_DIR must be a folder with a shorter path: ${join(folder, socket)} is longer than ${maxPathBytes}`;
    throw new UserError(`${limit} bytes, the maximum of this system for a socket.`);
  }
  const descriptor = openSync(folder, constants.O_RDONLY | constants.O_DIRECTORY);
  return { path: `/proc/${process.pid}/fd/${descriptor}`, close: () => closeSync(descriptor) };
}
