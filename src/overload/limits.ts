import { getHeapStatistics } from "node:v8";
import type { MemoryLimits } from "./memory-budget.js";

/** What clients may do on either port: each, unless it is said otherwise. Times are in milliseconds. */
export interface Limits extends MemoryLimits {
  /** The head of a request must be complete by then; over HTTP/2, the client's settings. */
  readonly headersTimeoutMs: number;
  /** A whole request must be complete by then; so long may a client stay that does not read its answer. */
  readonly requestTimeoutMs: number;
  /** So long may an HTTP/1.1 connection be kept on which nothing is asked. */
  readonly keepAliveMs: number;
  /** The encryption must be agreed on by then. */
  readonly handshakeTimeoutMs: number;
  /** How large the head of a request may be, in bytes, and how many headers it may have. */
  readonly maxHeaderBytes: number;
  readonly maxHeaders: number;
  /** How many requests may wait on an HTTP/1.1 connection while another is answered. */
  readonly maxPipelined: number;
  /** How many calls may be under way on one gRPC connection. */
  readonly maxStreams: number;
  /** How many of them may need no credential (health, reflection): some of these stay for as long as their client likes. */
  readonly maxPublicStreams: number;
  /** How many requests a stream of reflection may bring. */
  readonly maxReflectionRequests: number;
  /** In how many pieces the message of a gRPC call may come. */
  readonly maxMessageChunks: number;
  /** So long may a gRPC connection be kept on which nothing is asked. */
  readonly grpcIdleMs: number;
  /** How many calls a gRPC client may take back at once, on one connection, and how many for each second after that. */
  readonly resetBurst: number;
  readonly resetsPerSecond: number;
  /** Only those count that are taken back so soon. */
  readonly resetWithinMs: number;
}

/** What clients can make a process hold: an eighth of its heap, so that the work for them has the rest. */
const totalBytes = Math.min(64 * 2 ** 20, Math.floor(getHeapStatistics().heap_size_limit / 8));

export const standardLimits: Limits = {
  headersTimeoutMs: 20_000,
  requestTimeoutMs: 30_000,
  keepAliveMs: 72_000,
  handshakeTimeoutMs: 10_000,
  maxHeaderBytes: 16 * 1024,
  maxHeaders: 100,
  // Clients that pipeline at all send a few at once. Whoever sends more does not wait for what it asked.
  maxPipelined: 8,
  totalBytes,
  // Two of the largest pages.
  connectionBytes: 8 * 2 ** 20,
  // Strangers and one tenant together leave half of it to the others.
  tenantBytes: Math.floor(totalBytes / 4),
  smallBytes: 16 * 1024,
  maxStreams: 250,
  maxPublicStreams: 8,
  maxReflectionRequests: 100,
  // The largest message in pieces of 128 bytes. A packet of the network has ten times that.
  maxMessageChunks: 1_024,
  // A client that has nothing to ask connects again by itself.
  grpcIdleMs: 300_000,
  // Clients give up calls now and then, by their deadlines. Node 20 allows 1,000 at once, which keeps everyone else waiting
  // for half a second, and has no setting for it.
  resetBurst: 200,
  resetsPerSecond: 100,
  resetWithinMs: 50,
};

/** How often it is looked whether somebody is too slow: left to itself, Node looks every 30 seconds. */
export const timeoutCheckIntervalMs = 1_000;
