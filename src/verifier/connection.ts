import { setTimeout as sleep } from "node:timers/promises";
import { create } from "@bufbuild/protobuf";
import { type Client, Code, createClient } from "@connectrpc/connect";
import { createGrpcTransport } from "@connectrpc/connect-node";
import { KeysService } from "../../gen/latchkey/v1/keys_service_pb.js";
import {
  type DelegateRequest,
  DelegateRequestSchema,
  VerifierService,
} from "../../gen/latchkey/v1/verifier_service_pb.js";
import { checkCredential } from "../client/credential.js";
import { toLatchkeyError } from "../client/protobuf-error.js";
import { checkUrl } from "../client/url.js";
import { systemClock } from "../revocation/clock.js";
import type { Uses } from "./key-states.js";
import { createQueue } from "./queue.js";
import { createSession, type Resolution, type Session } from "./session.js";
import { SessionManager } from "./session-manager.js";

/** The addresses and the credential of the service. */
export interface ConnectionOptions {
  /** The gRPC address of the service, such as `https://keys.example.com:50051`, or several that are used in turn. */
  readonly address: string | readonly string[];
  /** An API key with the scope `keys.verify`. */
  readonly key: string;
  /** Certificates in PEM format: the authority that is trusted, and for mTLS that of the client. */
  readonly tls?: { readonly ca?: string | Buffer; readonly cert?: string | Buffer; readonly key?: string | Buffer };
}

/**
 * The stream to the service. It is opened again whenever it ends.
 *
 * @internal
 */
export interface Connection {
  /** The session of the open stream. Undefined while there is none. */
  readonly session: Session | undefined;
  /** KeysService on the present connection. */
  readonly keys: Client<typeof KeysService>;
  /** Renews the grant for some time, because keys are verified. */
  keepGranted(): void;
  /** Resolves with the first grant. Rejects if the service refuses the key. */
  readonly opened: Promise<void>;
  close(): Promise<void>;
}

/** For how long after a verification the grant is renewed. An idle verifier sends only keepalive pings of HTTP/2. */
const renewedForMs = 5_000;

/** How often a grant is renewed in its time. With several pings, it survives a late response. */
const pingsPerGrant = 3;

/** The interval of pings before the first grant. */
const firstPingMs = 100;

/**
 * A stream without a grant for this long and for this many pings is closed, and another replica is tried. The pings are
 * counted because grants may have arrived while this process was too busy to read them.
 */
const maxUnanswered = { ms: 3_000, pings: 10 };

/**
 * The limits of the interval of pings. A grant is short if the lease of the replica is about to end. With a long lease, the
 * pings of `maxUnanswered` must not take longer than its time.
 */
const pingMs = { min: 20, max: maxUnanswered.ms / maxUnanswered.pings };

/**
 * Uses are reported after each interval, in messages of at most this many keys with a pause between them. One report of 10,000 keys
 * blocked the event loops of this process and of the service for 100 ms each: other verifications waited, or the grant ended.
 */
const reports = { intervalMs: 2_000, keys: 100, pauseMs: 10 };

/** How long `close` waits for the service to end the stream. */
const closeTimeoutMs = 1_000;

/** The pause before a stream is opened again, at first and at most. */
const reconnectMs = { first: 50, max: 2_000 };

/** How a dead connection is detected. */
const keepalive = { pingIntervalMs: 3_000, pingTimeoutMs: 3_000 };

/** The statuses with which the service refuses the key, or does not have the stream. A retry would not help. */
const refusals = new Set([Code.Unauthenticated, Code.PermissionDenied, Code.Unimplemented]);

/** How long the state of a key is awaited on the stream. After that, the service is called. */
const resolveTimeoutMs = 1_000;

/**
 * Requests the state of a key, and awaits it for a limited time: an overloaded service drops requests.
 *
 * @internal
 */
export async function requestState(session: Session, hash: string): Promise<Resolution> {
  const giveUp = setTimeout(session.abandon, resolveTimeoutMs, hash);
  const resolution = await session.resolve(hash);
  clearTimeout(giveUp);
  return resolution;
}

/**
 * @internal
 * @param onError called with the reason whenever a stream ends
 */
export function openConnection(
  { address, key, tls = {} }: ConnectionOptions,
  maxBytes: number,
  onError: (error: unknown) => void,
): Connection {
  const addresses = typeof address === "string" ? [address] : address;
  // Now, because a later address is used only when the connection to another one has ended.
  for (const each of addresses) checkUrl("address", each);
  checkCredential(key);
  /** Aborted by `close`. */
  const closing = new AbortController();
  /** Aborted if the service does not end the stream in time. */
  const closed = new AbortController();
  let transports = 0;
  let current = openTransport();
  let session: Session | undefined;
  /** Kept when a stream ends, so that the next one reports them. */
  const used = new Set<Uses>();
  /** Whether keys were verified since the last ping. */
  let isUsed = false;
  let lastGrantAt = 0;
  /** Continues the pings. Undefined unless they are paused. */
  let wake: (() => void) | undefined;
  /** Ends the open stream in order: the service receives everything that was sent, and ends it, too. */
  let endRequests = () => {};
  let resolveOpened = () => {};
  let rejectOpened = (_error: unknown) => {};
  const opened = new Promise<void>((resolve, reject) => {
    resolveOpened = resolve;
    rejectOpened = reject;
  });
  opened.catch(() => {}); // it may be awaited later

  function openTransport() {
    const baseUrl = addresses[transports++ % addresses.length] as string;
    const manager = new SessionManager(baseUrl, keepalive, tls);
    const transport = createGrpcTransport({
      baseUrl,
      sessionManager: manager,
      acceptCompression: [],
      interceptors: [
        (next) => (request) => {
          request.header.set("authorization", `Bearer ${key}`);
          return next(request);
        },
      ],
    });
    return { manager, keys: createClient(KeysService, transport), verifier: createClient(VerifierService, transport) };
  }

  /** Serves one stream until it ends. */
  async function serveStream(): Promise<void> {
    const ended = new AbortController();
    const requests = createQueue<DelegateRequest>();
    endRequests = requests.end;
    const stream = createSession({
      clock: systemClock,
      maxBytes,
      used,
      send: (message) => requests.push(create(DelegateRequestSchema, { message })),
      onGrant() {
        lastGrantAt = performance.now();
        resolveOpened();
      },
      onInvalidated(hashes) {
        for (const hash of hashes) void requestState(stream, hash);
      },
      onClockJump: () => ended.abort(),
    });
    try {
      const signal = AbortSignal.any([ended.signal, closed.signal]);
      const responses = current.verifier.delegate(requests, { signal });
      session = stream;
      void keepGranted(stream, ended);
      void reportUses(stream, ended);
      for await (const response of responses) stream.receive(response);
    } finally {
      // Before another stream is opened: nothing that was received on this one may be used any more.
      session = undefined;
      stream.close();
      requests.end();
      ended.abort();
      wake?.();
    }
  }

  /** Sends pings while keys are verified. */
  async function keepGranted(stream: Session, ended: AbortController): Promise<void> {
    /** When the present pings began, after a pause without any. */
    let begunAt = performance.now();
    let activeUntil = begunAt + renewedForMs;
    while (!ended.signal.aborted) {
      const now = performance.now();
      if (isUsed) activeUntil = now + renewedForMs;
      isUsed = false;
      if (now > activeUntil) {
        await new Promise<void>((resolve) => {
          wake = resolve;
        });
        wake = undefined;
        begunAt = performance.now();
        continue;
      }
      const unansweredMs = now - Math.max(begunAt, lastGrantAt);
      if (unansweredMs > maxUnanswered.ms && stream.unansweredPings >= maxUnanswered.pings) return ended.abort();
      stream.ping();
      const intervalMs = Math.min(pingMs.max, Math.max(pingMs.min, stream.grantedMs / pingsPerGrant));
      await systemClock.sleep(stream.grantedMs === 0 ? firstPingMs : intervalMs);
    }
  }

  /** Reports the verifications of each interval in the next one. */
  async function reportUses(stream: Session, ended: AbortController): Promise<void> {
    while (!ended.signal.aborted) {
      await systemClock.sleep(reports.intervalMs);
      // Without a grant, the service may not be reached. A report would be lost, and a later one may arrive.
      if (!stream.isGranted()) continue;
      for (let left = stream.usedKeys; left > 0 && !ended.signal.aborted; left -= reports.keys) {
        stream.reportUses(reports.keys);
        await systemClock.sleep(reports.pauseMs);
      }
    }
  }

  async function keepOpen(): Promise<void> {
    let pauseMs = reconnectMs.first;
    for (;;) {
      const openedAt = performance.now();
      const reason = await serveStream().catch((error) => toLatchkeyError(error) ?? error);
      // In a later turn of the event loop. When the connection was destroyed in the turn in which its stream ended, Node
      // 20.20.2 ended the process with a corrupted heap; probably because that turn is a callback of the connection.
      await new Promise(setImmediate);
      current.manager.abort();
      if (closing.signal.aborted) return;
      // At once, so that calls of VerifyKey use another replica, too.
      current = openTransport();
      if (refusals.has(reason?.status ?? reason?.code)) rejectOpened(reason);
      onError(reason);
      if (performance.now() - openedAt > reconnectMs.max) pauseMs = reconnectMs.first;
      // Half of it is random, so that the clients of a replica do not all return at once.
      const pause = pauseMs * (0.5 + Math.random() / 2);
      await sleep(pause, undefined, { ref: false, signal: closing.signal }).catch(() => {});
      if (closing.signal.aborted) return current.manager.abort();
      pauseMs = Math.min(pauseMs * 2, reconnectMs.max);
    }
  }

  const running = keepOpen();
  return {
    get session() {
      return session;
    },
    get keys() {
      return current.keys;
    },
    keepGranted() {
      isUsed = true;
      wake?.();
    },
    opened,
    async close() {
      closing.abort();
      session?.reportUses();
      endRequests();
      const timer = setTimeout(() => closed.abort(), closeTimeoutMs);
      await running;
      clearTimeout(timer);
    },
  };
}
