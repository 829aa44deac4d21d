import type { IncomingMessage, ServerResponse } from "node:http";
import type { Duplex } from "node:stream";

/** The property of a connection that stores its last response. A map would add garbage collection cost to each call. */
const lastResponse = Symbol("last response");

/** The same for the response to the last request whose headers Node has read: earlier ones may still be in flight. */
const lastRead = Symbol("last read");

type Connection = Duplex & { [lastResponse]?: ServerResponse; [lastRead]?: ServerResponse };

/** Records the response to a request, as soon as it is the next one on its connection. */
export function recordResponse({ socket }: IncomingMessage, response: ServerResponse): void {
  const connection: Connection = socket;
  connection[lastRead] = response;
  if (response.socket !== null) {
    connection[lastResponse] = response;
    return;
  }
  // The request was pipelined. Node assigns the socket when it has written the previous response.
  response.once("socket", () => {
    connection[lastResponse] = response;
  });
}

/** The response in flight on a connection. Node sets the socket of a response to null when it has been sent. */
export function responseInFlight(connection: Connection): ServerResponse | undefined {
  const response = connection[lastResponse];
  return response?.socket ? response : undefined;
}

/** Whether the input that Node reads belongs to a request that has its response already. */
export function isAnswered(connection: Connection): boolean {
  const response = connection[lastRead];
  return response?.writableEnded === true && !response.req.complete;
}
