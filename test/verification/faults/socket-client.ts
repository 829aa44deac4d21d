import { connect, type Socket } from "node:net";
import { type Answer, type ProtocolClient, patienceMs } from "./answer.js";
import type { Request } from "./request.js";

/** How a protocol over HTTP/1.1 writes a request, and reads an answer once it is here as a whole. */
export interface Protocol {
  readonly name: "http" | "connect";
  write(request: Request): Buffer;
  read(bytes: Buffer): Answer | undefined;
}

/**
 * HTTP/1.1 over connections that are kept, one call at a time on each. By hand, on bare sockets: Node's own client
 * would take as much of the machine as a replica.
 */
export function openSocketClient(port: number, protocol: Protocol): ProtocolClient {
  const idle: Connection[] = [];
  const all = new Set<Connection>();
  const sweep = setInterval(() => {
    const now = performance.now();
    for (const connection of all) if (connection.busySince() + patienceMs < now) connection.giveUp();
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
      for (const connection of all) connection.giveUp();
    },
  };
}

interface Connection {
  send(request: Request, done: (answer: Answer) => void): void;
  /** Infinity while it is idle. */
  busySince(): number;
  closed(): boolean;
  giveUp(): void;
}

function openConnection(port: number, protocol: Protocol, free: (reusable: boolean) => void): Connection {
  const socket: Socket = connect({ port, host: "127.0.0.1", noDelay: true });
  let received = Buffer.alloc(0);
  let done: ((answer: Answer) => void) | undefined;
  let since = Infinity;
  let connected = false;
  let gaveUp = false;

  const finish = (answer: Answer) => {
    const told = done;
    done = undefined;
    since = Infinity;
    received = Buffer.alloc(0);
    free(!socket.destroyed);
    told?.(answer);
  };
  socket.on("connect", () => {
    connected = true;
  });
  socket.on("data", (bytes) => {
    // What nobody asked for must not be taken for the answer to the next call.
    if (done === undefined) return void socket.destroy();
    received = received.length === 0 ? bytes : Buffer.concat([received, bytes]);
    const answer = protocol.read(received);
    if (answer !== undefined) finish(answer);
  });
  socket.on("error", () => {});
  socket.on("close", () => {
    if (gaveUp || connected) finish({ kind: "unavailable", why: gaveUp ? "no answer in time" : "connection broken" });
    else finish({ kind: "unsent" });
  });

  return {
    send(request, whenDone) {
      done = whenDone;
      since = performance.now();
      socket.write(protocol.write(request));
    },
    busySince: () => since,
    closed: () => socket.destroyed || socket.readableEnded,
    giveUp() {
      gaveUp = true;
      socket.destroy();
    },
  };
}
