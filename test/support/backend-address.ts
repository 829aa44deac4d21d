import type { NetConnectOpts } from "node:net";
import { socketOf } from "../../src/storage/postgres/connection.js";

/** Where a backend listens: on a socket in the file system, as the embedded ones do, or on a port. */
export function addressOf(url: string): NetConnectOpts {
  const { hostname, port, searchParams } = new URL(url);
  const path = searchParams.get("path") ?? socketOf(url).path;
  return path === undefined ? { host: hostname, port: Number(port) } : { path };
}

/** The same backend by way of a port of this machine, where somebody passes bytes on to it. */
export function byPort(url: string, port: number): string {
  const through = new URL(url);
  through.searchParams.delete("path");
  through.hostname = "127.0.0.1";
  through.port = `${port}`;
  return through.href;
}
