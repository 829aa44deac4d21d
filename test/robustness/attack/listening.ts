import { existsSync, readdirSync, readFileSync, readlinkSync } from "node:fs";
import { join } from "node:path";

interface TcpSocket {
  readonly port: number;
  readonly state: string;
  readonly inode: string;
}

const established = "01";
const listening = "0A";

/** The TCP sockets of this machine. Requires /proc. */
function tcpSockets(): TcpSocket[] {
  const files = ["/proc/net/tcp", "/proc/net/tcp6"].filter((file) => existsSync(file));
  if (files.length === 0) throw new Error("this attack requires /proc, which only Linux has");
  return files.flatMap((file) =>
    readFileSync(file, "utf8")
      .trim()
      .split("\n")
      .slice(1)
      .map((line) => {
        const [, local = "", , state = "", , , , , , inode = ""] = line.trim().split(/\s+/);
        return { port: Number.parseInt(local.split(":")[1] ?? "", 16), state, inode };
      }),
  );
}

/** The number of open connections of a local port. */
export function establishedOn(port: number): number {
  return tcpSockets().filter((socket) => socket.port === port && socket.state === established).length;
}

/** The TCP ports that these processes listen on. */
export function portsOf(pids: readonly number[]): number[] {
  const inodes = new Set(pids.flatMap(socketsOf));
  return tcpSockets()
    .filter(({ state, inode }) => state === listening && inodes.has(inode))
    .map(({ port }) => port);
}

function socketsOf(pid: number): string[] {
  const folder = `/proc/${pid}/fd`;
  try {
    return readdirSync(folder).flatMap((fd) => /^socket:\[(\d+)\]$/.exec(readlinkSync(join(folder, fd)))?.[1] ?? []);
  } catch {
    return []; // the process has ended, or the descriptor was closed
  }
}
