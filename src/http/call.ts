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

/** A call on the HTTP port, from its first byte to its last; shared by the two protocols there. */
export interface HttpCall extends Call {
  readonly startedAt: number;
  deadline: number;
  protocol: "http" | "connect";
  procedure: Procedure | undefined;
  caller: Principal | undefined;
  failure: ApiError | undefined;
  span: Span | undefined;
  logged: boolean;
}

/** Where a request keeps its call, for those who know it by Node's request alone. */
const callOf = Symbol("call");

type WithCall = IncomingMessage & { [callOf]?: HttpCall };

/** Who has sent a request, once that is known. */
export function callerOf(request: IncomingMessage): Principal | undefined {
  return (request as WithCall)[callOf]?.caller;
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
    closeEvent: "close", // also when it has been answered; by then nobody listens
    workspaceId: undefined,
    callerId: undefined,
    responseHeaders: undefined,
    abortReason: undefined,
    onAbort: undefined,
    protocol: "http",
    procedure: undefined,
    caller: undefined,
    failure: undefined,
    span: undefined,
    logged: false,
  };
  (request as WithCall)[callOf] = call;
  return call;
}

/** Authenticates and authorises, before anything of the body is read. */
export function admitCall({ call, raw }: FastifyRequest, procedure: Procedure): MaybePromise<void> {
  call.procedure = procedure;
  call.span = procedure.beginSpan?.(call.protocol, (name) => raw.headers[name]?.toString());
  return chain(procedure.admit(call, valuesOf(raw, "authorization")), (caller) => {
    call.caller = caller;
  });
}

/** Every value of a header, by its name in small letters: of several, `headers` may show the first. */
function valuesOf({ rawHeaders }: IncomingMessage, wanted: string): string[] {
  const values: string[] = [];
  for (let index = 0; index < rawHeaders.length; index += 2) {
    const name = rawHeaders[index] as string;
    // The length tells most others apart, without a copy in small letters.
    if (name.length === wanted.length && name.toLowerCase() === wanted) values.push(rawHeaders[index + 1] as string);
  }
  return values;
}

/** Performs an admitted call whose request is there as a whole. */
export function performCall(call: HttpCall, decode: Parameters<Procedure["perform"]>[2]) {
  if (call.procedure === undefined || call.caller === undefined) throw new Error("a call was not admitted");
  return call.procedure.perform(call, call.caller, decode);
}

/** What a call answers is for its caller alone, may hold a secret, and is not to be taken for a page. */
export const neverCached = { "cache-control": "no-store", "x-content-type-options": "nosniff" } as const;

/** Sends the whole body of a response, and logs the call. Throws if there is no memory for it. */
export type SendBody = (request: FastifyRequest, reply: FastifyReply, body: string | Buffer | undefined) => void;

/** Whose memory a call takes; undefined while nobody knows. */
export function tenantOf({ caller }: Pick<HttpCall, "caller">): string | undefined {
  if (caller === undefined) return undefined;
  return caller.kind === "key" ? caller.workspaceId : caller.kind;
}

/** Reserves memory for a response, until the kernel has taken it or its connection has ended. */
export function reserveResponse(memory: MemoryBudget, call: HttpCall, response: ServerResponse, bytes: number): void {
  // On a connection that has ended, nothing will be written, and so nothing kept.
  if (response.req.socket.destroyed) return;
  const reservation = memory.accountOf(response.req.socket).reserve(bytes, tenantOf(call));
  if (reservation === undefined) throw responseMemoryExhausted();
  response.once("close", reservation.release);
}

/** Writes the one line of a call, when it has been answered. */
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
    failure: call.failure,
    span: call.span,
    refusedWith: reply.raw.statusCode >= 400 ? reply.raw.statusCode : undefined,
  });
}

/** Whatever was thrown on the HTTP port, Fastify's own failures included, in terms of the catalogue. */
export function toHttpError(error: unknown): ApiError {
  const code = error instanceof Error && "code" in error ? String(error.code) : "";
  // So Node says that the client hung up in the midst of its body.
  if (code === "ECONNRESET" && (error as Error).message === "aborted") return cancelled();
  return frameworkFailures[code]?.() ?? toApiError(error);
}

const frameworkFailures: Record<string, () => ApiError> = {
  FST_ERR_CTP_INVALID_MEDIA_TYPE: () =>
    unsupportedMediaType("The body must be JSON: send it with `Content-Type: application/json`."),
  FST_ERR_BAD_URL: () => invalidInput([{ location: "path", message: "is not a valid URL path" }]),
};
