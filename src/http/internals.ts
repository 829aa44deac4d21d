// The parts of Node's http that it does not document, in Node 20 to 24. Listed in
// docs/architecture/library-internals.md.
import { createServer, IncomingMessage, type Server, ServerResponse } from "node:http";
import { Server as NetServer, Socket } from "node:net";
import { Duplex } from "node:stream";

interface ResponseInternals {
  /** The encoded headers. Null before they are written. */
  _header: string | null;
  _headerSent: boolean;
  /** Whether a response to this method has a body. */
  _hasBody: boolean;
}

interface ConnectionInternals {
  /** Reads the requests of a connection. Null after the connection has closed. */
  readonly parser?: {
    /** Called with each request. A result of 2 stops the parser, as after an upgrade to another protocol. */
    onIncoming(): number;
  } | null;
}

/**
 * Writes a whole encoded response to the socket, without Node's response code, which would double the CPU time of a shed
 * request. To Node, the response has sent its headers and has no body.
 *
 * @param encoding the encoding of a string
 */
export function writeEncoded(response: ServerResponse, encoded: Buffer | string, encoding?: BufferEncoding): void {
  const internals = response as unknown as ResponseInternals;
  internals._header = "written";
  internals._headerSent = true;
  internals._hasBody = false;
  response.socket?.write(encoded, encoding);
  response.end(); // if the kernel has not accepted all of it, Node waits for that
}

/**
 * Closes a connection, and stops Node from parsing the rest of its input. Node by itself would parse all input that it
 * has read, possibly a thousand requests, and destroy each with an error of its own.
 */
export function closeAndStopParsing(socket: Socket): void {
  const { parser } = socket as Socket & ConnectionInternals;
  if (parser) parser.onIncoming = () => 2;
  socket.destroy();
}

/** Closes only the listening socket of a server. Its own close() would also close idle connections. */
export function closeListeningSocket(server: Server): void {
  NetServer.prototype.close.call(server);
}

/** Fails at start-up, and not under overload, if a new version has changed one of these. */
export function assertInternals(): void {
  const response: ServerResponse & Partial<ResponseInternals> = new ServerResponse(new IncomingMessage(new Socket()));
  if (response._header !== null || response._headerSent !== false || response._hasBody !== true) {
    throw changed("a response does not have `_header`, `_headerSent` and `_hasBody`");
  }
  const server = createServer();
  const connection: Duplex & ConnectionInternals = new Duplex({ read() {} });
  server.emit("connection", connection); // a documented way to pass a connection to a server
  if (typeof connection.parser?.onIncoming !== "function") throw changed("a connection does not have `parser`");
  connection.destroy();
  if (!(server instanceof NetServer)) throw changed("an HTTP server is not a `net.Server`");
}

function changed(difference: string): Error {
  return new Error(
    `Node ${process.version} is not supported: ${difference}. Use Node 20 to 24, or adapt src/http/internals.ts.`,
  );
}
