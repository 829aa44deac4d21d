import { connect } from "node:net";
import { callHeaders, type GrpcLoadOptions, type GrpcRequest, openCaller } from "../load/grpc.js";
import { type HttpLoadOptions, type HttpRequest, lengthOf } from "../load/http.js";
import { WrongAnswer } from "../load/load.js";
import type { Clients } from "./offer.js";

type Ended = (served: boolean) => void;

/** How many requests a connection has in flight at most: the service closes one that sends more. Those beyond wait here, and their waiting counts. */
const mostPipelined = 8;

/**
 * Calls over HTTP/1.1. Those of one moment go out together, several on a connection: else whoever calls would have more to
 * do than the service, and could not ask for twice what it can answer.
 */
export async function openHttpClients({ port, connections, next }: HttpLoadOptions): Promise<Clients> {
  let failure: Error | undefined;
  const fail = (error: Error) => {
    failure ??= error;
  };
  let waiting: Asked[] = [];
  let turn = 0;
  let sending = false;

  function sendSoon(): void {
    if (sending || waiting.length === 0) return;
    sending = true;
    setImmediate(send);
  }

  function send(): void {
    sending = false;
    let sent = 0;
    for (let tried = 0; tried < connections && sent < waiting.length; tried++) {
      const pipe = pipes[turn++ % connections];
      const asked = waiting.slice(sent, sent + (pipe?.room() ?? 0));
      if (asked.length > 0) pipe?.send(asked);
      sent += asked.length;
    }
    waiting = waiting.slice(sent);
  }

  const pipes = await Promise.all(Array.from({ length: connections }, () => openPipe(port, sendSoon, fail)));
  return {
    get failure() {
      return failure;
    },
    call(ended) {
      waiting.push({ request: next(), ended });
      sendSoon();
    },
    close() {
      for (const pipe of pipes) pipe.close();
    },
  };
}

interface Asked {
  readonly request: HttpRequest;
  readonly ended: Ended;
}

/** A connection with several requests in flight, which are answered in their order. */
interface Pipe {
  /** How many more it takes. */
  room(): number;
  send(asked: readonly Asked[]): void;
  close(): void;
}

function openPipe(port: number, answered: () => void, fail: (error: Error) => void): Promise<Pipe> {
  let awaited: Asked[] = [];
  let received = "";
  let closed = false;

  /** In latin1 every byte is a character, so that lengths agree. */
  function take(length: number, buffer: Uint8Array): boolean {
    received += (buffer as Buffer).toString("latin1", 0, length);
    let taken = 0;
    for (let whole = lengthOf(received); whole !== undefined && received.length >= whole; whole = lengthOf(received)) {
      judge(awaited[taken++], received.slice(0, whole));
      received = received.slice(whole);
    }
    awaited = awaited.slice(taken);
    answered();
    return true;
  }

  function judge(asked: Asked | undefined, answer: string): void {
    const served = answer.startsWith("HTTP/1.1 200 ") && asked !== undefined && answer.includes(asked.request.expected);
    if (served || isTurningAway(answer)) asked?.ended(served);
    else fail(new WrongAnswer(`expected was 200 with ${asked?.request.expected}; the answer was:\n${answer}`));
  }

  const socket = connect({
    port,
    host: "127.0.0.1",
    noDelay: true,
    onread: { buffer: Buffer.allocUnsafe(64 * 1024), callback: take },
  });
  return new Promise((resolve, reject) => {
    socket.once("connect", () =>
      resolve({
        room: () => mostPipelined - awaited.length,
        send(asked) {
          awaited.push(...asked);
          socket.write(Buffer.concat(asked.map(({ request }) => request.bytes)));
        },
        close() {
          closed = true;
          socket.destroy();
        },
      }),
    );
    socket.on("error", (error) => {
      reject(error);
      fail(error);
    });
    socket.once("close", () => closed || fail(new WrongAnswer("the server closed a connection")));
  });
}

/** Whether an answer says, in the envelope, that one is to come back later. */
function isTurningAway(answer: string): boolean {
  return (
    answer.startsWith("HTTP/1.1 503 ") &&
    /\r\nretry-after: \d+\r\n/i.test(answer) &&
    answer.includes('/application/service_unavailable"')
  );
}

/** How many calls a connection has under way at most; those beyond wait here, and their waiting counts. */
const mostStreams = 100;

/** Calls over gRPC, on connections in turn. */
export async function openGrpcClients(options: Omit<GrpcLoadOptions, "streams">): Promise<Clients> {
  const { port, connections, next } = options;
  let failure: Error | undefined;
  const waiting: Ended[] = [];

  async function openLine() {
    const ends = new Map<GrpcRequest, Ended>();
    let made = next();
    const ended = (request: GrpcRequest, served: boolean) => {
      const end = ends.get(request);
      ends.delete(request);
      const first = waiting.shift();
      if (first !== undefined) call(first);
      end?.(served);
      return false;
    };
    const caller = await openCaller(port, callHeaders(options), {
      next: () => made,
      answered: (request) => ended(request, true),
      turnedAway: (request) => ended(request, false),
      failed(error) {
        failure ??= error;
      },
    });
    function call(end: Ended): void {
      made = { ...next() };
      ends.set(made, end);
      caller.start(1);
    }
    return { ends, call, close: caller.close };
  }

  const lines = await Promise.all(Array.from({ length: connections }, openLine));
  let turn = 0;
  return {
    get failure() {
      return failure;
    },
    call(end) {
      const line = lines[turn++ % connections];
      if (line === undefined || line.ends.size >= mostStreams) waiting.push(end);
      else line.call(end);
    },
    close() {
      for (const line of lines) line.close();
    },
  };
}
