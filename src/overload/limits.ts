import { getHeapStatistics } from "node:v8";
import type { MemoryLimits } from "./memory-budget.js";

/** The limits of clients on both ports. They apply to each client, unless stated otherwise. */
export interface Limits extends MemoryLimits {
  /** The timeout of the headers of a request; over HTTP/2, of the client's settings. */
  readonly headersTimeoutMs: number;
  /** The timeout of a whole request, and of a client that does not read its response. */
  readonly requestTimeoutMs: number;
  /** How long an idle HTTP/1.1 connection stays open. */
  readonly keepAliveMs: number;
  /** The timeout of the TLS handshake. */
  readonly handshakeTimeoutMs: number;
  /** The maximum size of the headers of a request in bytes, and their maximum number. */
  readonly maxHeaderBytes: number;
  readonly maxHeaders: number;
  /** How many requests may wait on an HTTP/1.1 connection while another is in flight. */
  readonly maxPipelined: number;
  /** How many calls may be in flight on one gRPC connection. */
  readonly maxStreams: number;
  /** How many of them may need no credential (health, reflection). Clients can keep some of these open forever. */
  readonly maxPublicStreams: number;
  /** How many requests one reflection stream may send. */
  readonly maxReflectionRequests: number;
  /** How many chunks the message of a gRPC call may have. */
  readonly maxMessageChunks: number;
  /** How long an idle gRPC connection stays open. */
  readonly grpcIdleMs: number;
  /** How many calls a gRPC client may reset at once on one connection, and how many per second after that. */
  readonly resetBurst: number;
  readonly resetsPerSecond: number;
  /** Only calls that the client resets within this time count. */
  readonly resetWithinMs: number;
}

/** The memory budget: an eighth of the heap. The rest is for the processing of requests. */
const totalBytes = Math.min(64 * 2 ** 20, Math.floor(getHeapStatistics().heap_size_limit / 8));

export const defaultLimits: Limits = {
  headersTimeoutMs: 20_000,
  requestTimeoutMs: 30_000,
  keepAliveMs: 72_000,
  handshakeTimeoutMs: 10_000,
  maxHeaderBytes: 16 * 1024,
  maxHeaders: 100,
  // Clients that use pipelining send a few requests at once. A client that sends more does not wait for responses.
  maxPipelined: 8,
  totalBytes,
  // Two pages of the maximum size.
  connectionBytes: 8 * 2 ** 20,
  // Unauthenticated clients and one tenant together leave half of the budget to the others.
  tenantBytes: Math.floor(totalBytes / 4),
  smallBytes: 16 * 1024,
  maxStreams: 250,
  maxPublicStreams: 8,
  maxReflectionRequests: 100,
  // A message of the maximum size in chunks of 128 bytes. A network packet has ten times that.
  maxMessageChunks: 1_024,
  // An idle client reconnects by itself with its next call.
  grpcIdleMs: 300_000,
  // Clients cancel calls now and then, because of their deadlines. Node 20 allows 1,000 resets at once. That delays all
  // other clients by half a second, and Node has no setting for it.
  resetBurst: 200,
  resetsPerSecond: 100,
  resetWithinMs: 50,
};

/** How often the servers check for clients that exceed a timeout. Node's default is 30 seconds. */
export const timeoutCheckIntervalMs = 1_000;
