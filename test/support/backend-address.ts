import type { NetConnectOpts } from "node:net";
import { socketOf } from "../../src/storage/postgres/connection.js";

/** The address of a backend: a Unix socket, as the embedded backends use, or a port. */
export function addressOf(url: string): NetConnectOpts {
  const { hostname, port, searchParams } = new URL(url);
  const path = searchParams.get("path") ?? socketOf(url).path;
  return path === undefined ? { host: hostname, port: Number(port) } : { path };
}

/** The URL of the same backend through a port of this machine that forwards to it. */
export function byPort(url: string, port: number): string {
  const through = new URL(url);
  through.searchParams.delete("path");
  through.hostname = "127.0.0.1";
  through.port = `${port}`;
  return through.href;
}
