import type { ClientHttp2Session, Settings } from "node:http2";
import type { Socket } from "node:net";
import { onTestFinished } from "vitest";
import { openSession } from "./grpc-streams.js";
import { openSocket } from "./sockets.js";

/** Opens a plain TCP connection, and closes it when the test has finished. */
export function openTestSocket(address: string): Socket {
  const socket = openSocket(address);
  onTestFinished(() => void socket.destroy());
  return socket;
}

/** Opens a plain HTTP/2 connection to a gRPC port, and closes it when the test has finished. */
export function openTestSession(grpcAddress: string, settings: Settings = {}): ClientHttp2Session {
  const session = openSession(grpcAddress, settings);
  onTestFinished(() => session.destroy());
  return session;
}
