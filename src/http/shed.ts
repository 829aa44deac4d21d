import { type IncomingMessage, type RequestListener, type ServerResponse, STATUS_CODES } from "node:http";
import { serviceOverloaded } from "../errors.js";
import { mintId } from "../ids.js";
import { responseInFlight } from "../net/sockets.js";
import type { LoadShedder } from "../overload/event-loop.js";
import type { ShedCounter } from "../overload/shed-counter.js";
import { neverCached } from "./call.js";
import { type Refusal, toRefusal } from "./connect/plugin.js";
import { errorBody, errorHeaders, jsonHeaders } from "./json/envelope.js";

export interface ShedOptions {
  readonly guard: LoadShedder;
  readonly shedding: ShedCounter;
  /** What error URLs begin with; asked when there is a failure, because the port may be known only once it is open. */
  readonly docsBase: () => string;
}

/** Who asks how the service fares must be told, above all when it fares badly. */
const alwaysServed = new Set(["/livez", "/readyz", "/v2/liveness"]);

/**
 * Turns requests away that the process has no time for, before anything is done for them: before Fastify sees them,
 * before their bodies and before their callers are known. What is turned away must cost a fraction of what is served, or
 * the turning away would be the overload. So it has no line in the log; it is counted.
 *
 * @param listening whether the server takes new connections; once it does not, each answer is the last on its connection
 */
export function shedRequests(
  serve: RequestListener,
  { guard, shedding, docsBase }: ShedOptions,
  listening: () => boolean,
): RequestListener {
  const failure = serviceOverloaded();
  const retry = errorHeaders(failure);
  let prepared: ((requestId: string) => Buffer) | undefined;

  function envelope(requestId: string): Refusal {
    return { status: 503, headers: jsonHeaders, body: errorBody(failure, requestId, docsBase()) };
  }

  function refuse(request: IncomingMessage, response: ServerResponse): void {
    shedding.count("event_loop");
    const requestId = mintId("req");
    const isRpc = request.url?.startsWith("/latchkey.") === true;
    const stays = listening();
    if (!isRpc && stays && request.method !== "HEAD" && isNextOnItsConnection(response)) {
      prepared ??= prepareAnswer(requestId, envelope(requestId), retry);
      writePast(response, prepared(requestId));
      return;
    }
    const { status, headers, body } = (isRpc && toRefusal(request, failure, requestId)) || envelope(requestId);
    if (!stays) response.setHeader("connection", "close");
    response
      .writeHead(status, {
        ...headers,
        ...neverCached,
        ...retry,
        "x-request-id": requestId,
        "content-length": Buffer.byteLength(body),
      })
      .end(body);
  }

  return (request, response) => {
    if (guard.accepts() || alwaysServed.has(pathOf(request))) serve(request, response);
    else refuse(request, response);
  };
}

function pathOf({ url = "" }: IncomingMessage): string {
  return url.split("?", 1)[0] ?? "";
}

/** Writes an answer once, as it goes over the wire, and makes from it the same answer to others: only the id differs. */
function prepareAnswer(id: string, { status, headers, body }: Refusal, more: Readonly<Record<string, string>>) {
  const length = `${Buffer.byteLength(body)}`;
  const all = { ...headers, ...more, "x-request-id": id, "content-length": length, connection: "keep-alive" };
  const lines = Object.entries(all).map(([name, value]) => `${name}: ${value}`);
  const sample = Buffer.from([`HTTP/1.1 ${status} ${STATUS_CODES[status]}`, ...lines, "", body].join("\r\n"));
  const places = [sample.indexOf(id), sample.lastIndexOf(id)];
  return (requestId: string) => {
    const answer = Buffer.from(sample);
    for (const place of places) answer.write(requestId, place, "latin1");
    return answer;
  };
}

/** Whether what is written to its connection now is the answer to this request, and others may follow. */
function isNextOnItsConnection(response: ServerResponse): boolean {
  return response.socket !== null && response.shouldKeepAlive && responseInFlight(response.socket) === response;
}

/**
 * Writes a whole answer past what Node has for answers of all kinds, which costs as much again as all else that is done
 * for a request that is turned away. By inner parts of Node: the answer is told that its head is out and it has no body.
 */
function writePast(response: ServerResponse, answer: Buffer): void {
  Object.assign(response, { _header: "written", _headerSent: true, _hasBody: false });
  response.socket?.write(answer);
  response.end();
}
