import { connect, type Socket } from "node:net";
import { type CallResult, callTimeoutMs, type ProtocolClient } from "./client.js";
import type { Request } from "./request.js";

/** How a protocol over HTTP/1.1 writes a request and parses a response. */
export interface Protocol {
  readonly name: "http" | "connect";
  write(request: Request): Buffer;
  /** Returns undefined while the response is incomplete. */
  read(bytes: Buffer): CallResult | undefined;
}

/**
 * An HTTP/1.1 client with keep-alive connections, one call at a time on each. It uses plain sockets, because Node's own
 * client would use as much CPU as a replica.
 */
export function openSocketClient(port: number, protocol: Protocol): ProtocolClient {
  const idle: Connection[] = [];
  const all = new Set<Connection>();
  const sweep = setInterval(() => {
    const now = performance.now();
    for (const connection of all) if (connection.busySince() + callTimeoutMs < now) connection.abort();
  }, 100);

  function open(): Connection {
    const connection = openConnection(port, protocol, (reusable) => {
      if (reusable) idle.push(connection);
      else all.delete(connection);
    });
    all.add(connection);
    return connection;
  }

  return {
    name: protocol.name,
    call(request, done) {
      let connection = idle.pop();
      while (connection?.closed()) connection = idle.pop();
      (connection ?? open()).send(request, done);
    },
    close() {
      clearInterval(sweep);
      for (const connection of all) connection.abort();
    },
  };
}

interface Connection {
  send(request: Request, done: (result: CallResult) => void): void;
  /** Infinity while the connection is idle. */
  busySince(): number;
  closed(): boolean;
  abort(): void;
}

function openConnection(port: number, protocol: Protocol, onFree: (reusable: boolean) => void): Connection {
  const socket: Socket = connect({ port, host: "127.0.0.1", noDelay: true });
  let received = Buffer.alloc(0);
  let done: ((result: CallResult) => void) | undefined;
  let busySince = Infinity;
  let connected = false;
  let timedOut = false;

  const finish = (result: CallResult) => {
    const callback = done;
    done = undefined;
    busySince = Infinity;
    received = Buffer.alloc(0);
    onFree(!socket.destroyed);
    callback?.(result);
  };
  socket.on("connect", () => {
    connected = true;
  });
  socket.on("data", (bytes) => {
    // Unsolicited bytes must not be read as the response to the next call.
    if (done === undefined) return void socket.destroy();
    received = received.length === 0 ? bytes : Buffer.concat([received, bytes]);
    const result = protocol.read(received);
    if (result !== undefined) finish(result);
  });
  socket.on("error", () => {});
  socket.on("close", () => {
    if (timedOut || connected) finish({ kind: "unavailable", why: timedOut ? "timeout" : "connection broken" });
    else finish({ kind: "unsent" });
  });

  return {
    send(request, whenDone) {
      done = whenDone;
      busySince = performance.now();
      socket.write(protocol.write(request));
    },
    busySince: () => busySince,
    closed: () => socket.destroyed || socket.readableEnded,
    abort() {
      timedOut = true;
      socket.destroy();
    },
  };
}
