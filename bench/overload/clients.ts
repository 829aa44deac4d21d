import { connect } from "node:net";
import { callHeaders, type GrpcLoadOptions, type GrpcRequest, openGrpcConnection } from "../load/grpc.js";
import { type HttpLoadOptions, type HttpRequest, lengthOf } from "../load/http.js";
import { UnexpectedResponse } from "../load/load.js";
import type { Clients } from "./offer.js";

type OnEnd = (served: boolean) => void;

/**
 * Requests in flight per connection. The service closes a connection that sends more. Further requests wait here, and
 * the wait counts as latency.
 */
const maxPipelined = 8;

/**
 * Calls over HTTP/1.1. Calls that are due together are pipelined, several per connection. Otherwise the clients would
 * need more CPU than the service and could not offer twice its capacity.
 */
export async function openHttpClients({ port, connections, next }: HttpLoadOptions): Promise<Clients> {
  let failure: Error | undefined;
  const fail = (error: Error) => {
    failure ??= error;
  };
  let waiting: PendingRequest[] = [];
  let nextIndex = 0;
  let sendScheduled = false;

  function scheduleSend(): void {
    if (sendScheduled || waiting.length === 0) return;
    sendScheduled = true;
    setImmediate(send);
  }

  function send(): void {
    sendScheduled = false;
    let sent = 0;
    for (let tried = 0; tried < connections && sent < waiting.length; tried++) {
      const pipe = pipes[nextIndex++ % connections];
      const batch = waiting.slice(sent, sent + (pipe?.freeSlots() ?? 0));
      if (batch.length > 0) pipe?.send(batch);
      sent += batch.length;
    }
    waiting = waiting.slice(sent);
  }

  const pipes = await Promise.all(
    Array.from({ length: connections }, () => openPipelinedConnection(port, scheduleSend, fail)),
  );
  return {
    get failure() {
      return failure;
    },
    call(onEnd) {
      waiting.push({ request: next(), onEnd });
      scheduleSend();
    },
    close() {
      for (const pipe of pipes) pipe.close();
    },
  };
}

interface PendingRequest {
  readonly request: HttpRequest;
  readonly onEnd: OnEnd;
}

/** A connection with several requests in flight. Responses arrive in the order of the requests. */
interface PipelinedConnection {
  /** How many more requests it accepts. */
  freeSlots(): number;
  send(requests: readonly PendingRequest[]): void;
  close(): void;
}

function openPipelinedConnection(
  port: number,
  onResponse: () => void,
  fail: (error: Error) => void,
): Promise<PipelinedConnection> {
  let pending: PendingRequest[] = [];
  let received = "";
  let closed = false;

  /** latin1 decodes each byte to one character, so string lengths equal byte lengths. */
  function onBytes(length: number, buffer: Uint8Array): boolean {
    received += (buffer as Buffer).toString("latin1", 0, length);
    let completed = 0;
    for (let end = lengthOf(received); end !== undefined && received.length >= end; end = lengthOf(received)) {
      checkResponse(pending[completed++], received.slice(0, end));
      received = received.slice(end);
    }
    pending = pending.slice(completed);
    onResponse();
    return true;
  }

  function checkResponse(call: PendingRequest | undefined, response: string): void {
    const served =
      response.startsWith("HTTP/1.1 200 ") && call !== undefined && response.includes(call.request.expected);
    if (served || isShed(response)) call?.onEnd(served);
    else fail(new UnexpectedResponse(`expected 200 with ${call?.request.expected}; received:\n${response}`));
  }

  const socket = connect({
    port,
    host: "127.0.0.1",
    noDelay: true,
    onread: { buffer: Buffer.allocUnsafe(64 * 1024), callback: onBytes },
  });
  return new Promise((resolve, reject) => {
    socket.once("connect", () =>
      resolve({
        freeSlots: () => maxPipelined - pending.length,
        send(requests) {
          pending.push(...requests);
          socket.write(Buffer.concat(requests.map(({ request }) => request.bytes)));
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
    socket.once("close", () => closed || fail(new UnexpectedResponse("the server closed a connection")));
  });
}

/** Whether a response is a proper 503 in the error envelope, with Retry-After. */
function isShed(response: string): boolean {
  return (
    response.startsWith("HTTP/1.1 503 ") &&
    /\r\nretry-after: \d+\r\n/i.test(response) &&
    response.includes('/application/service_unavailable"')
  );
}

/** Calls in flight per connection. Further calls wait here, and the wait counts as latency. */
const maxStreams = 100;

/** Calls over gRPC, distributed over the connections round-robin. */
export async function openGrpcClients(options: Omit<GrpcLoadOptions, "streams">): Promise<Clients> {
  const { port, connections, next } = options;
  let failure: Error | undefined;
  const waiting: OnEnd[] = [];

  async function openChannel() {
    const inFlight = new Map<GrpcRequest, OnEnd>();
    let nextRequest = next();
    const onEnded = (request: GrpcRequest, served: boolean) => {
      const onEnd = inFlight.get(request);
      inFlight.delete(request);
      const first = waiting.shift();
      if (first !== undefined) call(first);
      onEnd?.(served);
      return false;
    };
    const connection = await openGrpcConnection(port, callHeaders(options), {
      next: () => nextRequest,
      succeeded: (request) => onEnded(request, true),
      shed: (request) => onEnded(request, false),
      failed(error) {
        failure ??= error;
      },
    });
    function call(onEnd: OnEnd): void {
      nextRequest = { ...next() };
      inFlight.set(nextRequest, onEnd);
      connection.start(1);
    }
    return { inFlight, call, close: connection.close };
  }

  const channels = await Promise.all(Array.from({ length: connections }, openChannel));
  let nextIndex = 0;
  return {
    get failure() {
      return failure;
    },
    call(onEnd) {
      const channel = channels[nextIndex++ % connections];
      if (channel === undefined || channel.inFlight.size >= maxStreams) waiting.push(onEnd);
      else channel.call(onEnd);
    },
    close() {
      for (const channel of channels) channel.close();
    },
  };
}
