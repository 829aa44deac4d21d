import type { IncomingMessage, ServerResponse } from "node:http";
import type { Span } from "@opentelemetry/api";
import type { FastifyReply, FastifyRequest } from "fastify";
import type { Call } from "../call/call.js";
import type { Principal } from "../call/context.js";
import { chain, type MaybePromise } from "../call/maybe-promise.js";
import { type ApiError, cancelled, invalidInput, responseMemoryExhausted, unsupportedMediaType } from "../errors.js";
import { mintId } from "../ids.js";
import type { AccessLog } from "../observe/access-log.js";
import type { MemoryBudget } from "../overload/memory-budget.js";
import { maxCallMs, type Procedure, toApiError } from "../rpc/pipeline.js";

/** A call on the HTTP port, from its first byte to its last. HTTP/JSON and Connect share it. */
export interface HttpCall extends Call {
  readonly startedAt: number;
  deadline: number;
  protocol: "http" | "connect";
  procedure: Procedure | undefined;
  caller: Principal | undefined;
  error: ApiError | undefined;
  span: Span | undefined;
  logged: boolean;
}

/** The property of Node's request that stores its call, for code that has no Fastify request. */
const callSymbol = Symbol("call");

type RequestWithCall = IncomingMessage & { [callSymbol]?: HttpCall };

/** The caller of a request; undefined before it is authenticated. */
export function callerOf(request: IncomingMessage): Principal | undefined {
  return (request as RequestWithCall)[callSymbol]?.caller;
}

declare module "fastify" {
  interface FastifyRequest {
    call: HttpCall;
  }
}

export function beginCall(request: IncomingMessage, response: ServerResponse): HttpCall {
  const startedAt = performance.now();
  const call: HttpCall = {
    requestId: mintId("req"),
    startedAt,
    deadline: startedAt + maxCallMs,
    headers: (name) => valuesOf(request, name),
    connection: request.socket,
    client: response,
    closeEvent: "close", // also emitted after the response; by then there is no listener
    workspaceId: undefined,
    callerId: undefined,
    responseHeaders: undefined,
    abortReason: undefined,
    onAbort: undefined,
    protocol: "http",
    procedure: undefined,
    caller: undefined,
    error: undefined,
    span: undefined,
    logged: false,
  };
  (request as RequestWithCall)[callSymbol] = call;
  return call;
}

/** Authenticates and authorizes a call, before its body is read. */
export function admitCall({ call, raw }: FastifyRequest, procedure: Procedure): MaybePromise<void> {
  call.procedure = procedure;
  call.span = procedure.beginSpan?.(call.protocol, (name) => raw.headers[name]?.toString());
  return chain(procedure.admit(call, valuesOf(raw, "authorization")), (caller) => {
    call.caller = caller;
  });
}

/** Every value of a header, by its lower-case name. Node's `headers` may have only the first of several values. */
function valuesOf({ rawHeaders }: IncomingMessage, headerName: string): string[] {
  const values: string[] = [];
  for (let index = 0; index < rawHeaders.length; index += 2) {
    const name = rawHeaders[index] as string;
    // Comparing lengths first avoids a lower-case copy of most other names.
    if (name.length === headerName.length && name.toLowerCase() === headerName) {
      values.push(rawHeaders[index + 1] as string);
    }
  }
  return values;
}

/** Performs an admitted call whose request has arrived completely. */
export function performCall(call: HttpCall, decode: Parameters<Procedure["perform"]>[2]) {
  if (call.procedure === undefined || call.caller === undefined) throw new Error("the call was not admitted");
  return call.procedure.perform(call, call.caller, decode);
}

/** A response is for its caller alone and may contain a secret. Browsers must not interpret it as a page. */
export const noStoreHeaders = { "cache-control": "no-store", "x-content-type-options": "nosniff" } as const;

/** Adds a header of the request to those that the response depends on. CORS may have added `Origin`. */
export function varyBy(reply: FastifyReply, header: string): void {
  reply.header("vary", [reply.raw.getHeader("vary"), header].filter(Boolean).join(", "));
}

/** Sends the whole body of a response, and logs the call. Throws if the memory budget is exhausted. */
export type SendBody = (request: FastifyRequest, reply: FastifyReply, body: string | Buffer | undefined) => void;

/** The tenant whose memory budget a call uses; undefined before it is authenticated. */
export function tenantOf({ caller }: Pick<HttpCall, "caller">): string | undefined {
  if (caller === undefined) return undefined;
  return caller.kind === "key" ? caller.workspaceId : caller.kind;
}

/** Reserves memory for a response, until the kernel has accepted it or its connection has closed. */
export function reserveResponse(memory: MemoryBudget, call: HttpCall, response: ServerResponse, bytes: number): void {
  // Nothing is written to a closed connection, so no memory is needed.
  if (response.req.socket.destroyed) return;
  const reservation = memory.accountOf(response.req.socket).reserve(bytes, tenantOf(call));
  if (reservation === undefined) throw responseMemoryExhausted();
  response.once("close", reservation.release);
}

/** Writes the access log line of a call, once, after its response. */
export function logHttpCall(logCall: AccessLog, request: FastifyRequest, reply: FastifyReply): void {
  const { call } = request;
  if (call.logged) return;
  call.logged = true;
  logCall({
    requestId: call.requestId,
    protocol: call.protocol,
    method: call.procedure?.path ?? `${request.method} ${request.routeOptions.url ?? "(no route)"}`,
    workspaceId: call.caller?.kind === "key" ? call.caller.workspaceId : undefined,
    startedAt: call.startedAt,
    error: call.error,
    span: call.span,
    refusedWith: reply.raw.statusCode >= 400 ? reply.raw.statusCode : undefined,
  });
}

/** Converts anything thrown on the HTTP port, including Fastify's own errors, to an error of the catalogue. */
export function toHttpError(error: unknown): ApiError {
  const code = error instanceof Error && "code" in error ? String(error.code) : "";
  // Node reports this when the client disconnects while it sends its body.
  if (code === "ECONNRESET" && (error as Error).message === "aborted") return cancelled();
  return frameworkErrors[code]?.() ?? toApiError(error);
}

const frameworkErrors: Record<string, () => ApiError> = {
  FST_ERR_CTP_INVALID_MEDIA_TYPE: () =>
    unsupportedMediaType("The body must be JSON: send it with `Content-Type: application/json`."),
  FST_ERR_BAD_URL: () => invalidInput([{ location: "path", message: "is not a valid URL path" }]),
};
