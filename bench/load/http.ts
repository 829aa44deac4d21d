// By hand, on bare sockets: a client that costs as much as the server it loads measures itself. Of the CPU that bare
// Fastify takes for a call, autocannon 8.0.0 took three quarters for its part, and this client two fifths; it is also
// what lets every request differ. Requests are bytes made beforehand; of an answer no more is read than judges it.
import { connect } from "node:net";
import { createClosedLoop, type Load, WrongAnswer } from "./load.js";

/** A request as it goes over the wire, and what its answer must contain beside the status 200, in ASCII. */
export interface HttpRequest {
  readonly bytes: Buffer;
  readonly expected: string;
}

export interface HttpLoadOptions {
  readonly port: number;
  /** Each has one request under way. */
  readonly connections: number;
  /** Gives the next request; they may differ from call to call. */
  readonly next: () => HttpRequest;
}

/** The bytes of a POST of JSON. */
export function postRequest(path: string, body: unknown, credential: string): Buffer {
  const text = JSON.stringify(body);
  const head = [
    `POST ${path} HTTP/1.1`,
    "Host: 127.0.0.1",
    `Authorization: Bearer ${credential}`,
    "Content-Type: application/json",
    `Content-Length: ${Buffer.byteLength(text)}`,
  ];
  return Buffer.from(`${head.join("\r\n")}\r\n\r\n${text}`);
}

/** Gives these in turn, again and again. */
export function inTurn<T>(items: readonly T[]): () => T {
  let turn = 0;
  return () => items[turn++ % items.length] as T;
}

export async function openHttpLoad({ port, connections, next }: HttpLoadOptions): Promise<Load> {
  const loop = createClosedLoop();
  const events: AskerEvents = {
    answered(asker) {
      if (loop.answered()) asker.ask(next());
    },
    failed: loop.failed,
  };
  const askers = await Promise.all(Array.from({ length: connections }, () => openAsker(port, events)));
  return {
    run: (seconds) =>
      loop.run(seconds, askers.length, () => {
        for (const asker of askers) asker.ask(next());
      }),
    close() {
      for (const asker of askers) asker.close();
    },
  };
}

/** One connection, with at most one request under way. */
export interface Asker {
  ask(request: HttpRequest): void;
  close(): void;
}

export interface AskerEvents {
  /** The right answer came. */
  answered(asker: Asker): void;
  failed(error: Error): void;
}

export function openAsker(port: number, { answered, failed }: AskerEvents): Promise<Asker> {
  let expected = "";
  let received = "";
  let closed = false;

  /** Takes what came. In latin1 every byte is a character, so that lengths agree. */
  function take(length: number, buffer: Uint8Array): boolean {
    received += (buffer as Buffer).toString("latin1", 0, length);
    const whole = lengthOf(received);
    if (whole === undefined || received.length < whole) return true;
    const answer = received;
    received = "";
    if (answer.length === whole && answer.startsWith("HTTP/1.1 200 ") && answer.includes(expected)) answered(asker);
    else failed(new WrongAnswer(`expected was 200 with ${expected}; the answer was:\n${answer}`));
    return true;
  }

  const socket = connect({
    port,
    host: "127.0.0.1",
    noDelay: true,
    // One buffer for all that comes, in place of a new one each time and the machinery of streams.
    onread: { buffer: Buffer.allocUnsafe(64 * 1024), callback: take },
  });
  const asker: Asker = {
    ask(request) {
      expected = request.expected;
      socket.write(request.bytes);
    },
    close() {
      closed = true;
      socket.destroy();
    },
  };
  return new Promise((resolve, reject) => {
    socket.once("connect", () => resolve(asker));
    socket.on("error", (error) => {
      reject(error);
      failed(error);
    });
    socket.once("close", () => closed || failed(new WrongAnswer("the server closed a connection")));
  });
}

/** How long an answer is in all, once its head is there. NaN, which nothing equals, if the head does not say it. */
export function lengthOf(received: string): number | undefined {
  const bodyAt = received.indexOf("\r\n\r\n") + 4;
  if (bodyAt < 4) return undefined;
  return bodyAt + Number(/\r\ncontent-length: (\d+)\r\n/i.exec(received)?.[1]);
}
