import type { IncomingMessage, RequestListener, ServerResponse } from "node:http";
import { serviceOverloaded } from "../errors.js";
import { mintId } from "../ids.js";
import type { LoopGuard } from "../overload/event-loop.js";
import type { Shedding } from "../overload/shedding.js";
import { type Refusal, toRefusal } from "../rpc/connect.js";
import { failureBody, failureHeaders } from "./envelope.js";

export interface ShedOptions {
  readonly guard: LoopGuard;
  readonly shedding: Shedding;
  /** What error URLs begin with; asked when there is a failure, because the port may be known only once it is open. */
  readonly docsBase: () => string;
}

/** Who asks how the service fares must be told, above all when it fares badly. */
const alwaysServed = new Set(["/livez", "/readyz", "/v2/liveness"]);

/**
 * Turns requests away that the process has no time for, before anything is done for them: before Fastify sees them,
 * before their bodies and before their callers are known. What is turned away must cost a fraction of what is served, or
 * the turning away would be the overload. So it has no line in the log; it is counted.
 */
export function shedRequests(serve: RequestListener, { guard, shedding, docsBase }: ShedOptions): RequestListener {
  const failure = serviceOverloaded();
  const retry = failureHeaders(failure);
  const inJson = { status: 503, headers: { "content-type": "application/json; charset=utf-8" } };
  // All but the id is the same for everyone, and written once.
  let parts: string[] | undefined;

  function envelope(requestId: string): Refusal {
    parts ??= failureBody(failure, idMark, docsBase()).split(idMark);
    return { ...inJson, body: parts.join(requestId) };
  }

  function refuse(request: IncomingMessage, response: ServerResponse): void {
    shedding.count("event_loop");
    const requestId = mintId("req");
    const isRpc = request.url?.startsWith("/latchkey.") === true;
    const { status, headers, body } = (isRpc && toRefusal(request, failure, requestId)) || envelope(requestId);
    // As text, head and body go out in one piece.
    response
      .writeHead(status, { ...headers, ...retry, "x-request-id": requestId, "content-length": Buffer.byteLength(body) })
      .end(body);
  }

  return (request, response) => {
    if (guard.admits() || alwaysServed.has(request.url ?? "")) serve(request, response);
    else refuse(request, response);
  };
}

/** Stands where the id will. */
const idMark = "(id)";
