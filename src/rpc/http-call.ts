import type { FastifyReply, FastifyRequest } from "fastify";
import type { Principal } from "../auth/principal.js";
import { type Failure, invalidInput, mediaTypeUnsupported, payloadTooLarge } from "../errors.js";
import { mintId } from "../ids.js";
import { logCall } from "../observe/calls.js";
import type { Log } from "../observe/log.js";
import { type Call, largestMessage, longestCallMs, type Procedure, toFailure } from "./pipeline.js";

/** A call on the HTTP port, from its first byte to its last; shared by the two doors there. */
export interface HttpCall extends Call {
  readonly startedAt: number;
  door: "http" | "connect";
  procedure: Procedure | undefined;
  caller: Principal | undefined;
  failure: Failure | undefined;
}

declare module "fastify" {
  interface FastifyRequest {
    call: HttpCall;
  }
}

export function beginCall(): HttpCall {
  const startedAt = Date.now();
  return {
    requestId: mintId("req"),
    startedAt,
    deadline: startedAt + longestCallMs,
    door: "http",
    procedure: undefined,
    caller: undefined,
    failure: undefined,
  };
}

/** Authenticates and authorises, before anything of the body is read. */
export async function admitCall({ call, raw }: FastifyRequest, procedure: Procedure): Promise<void> {
  call.procedure = procedure;
  call.caller = await procedure.admit(call, raw.headersDistinct["authorization"] ?? []);
}

/** Decodes, validates and handles an admitted call. */
export function performCall(call: HttpCall, decode: Parameters<Procedure["perform"]>[2]) {
  if (call.procedure === undefined || call.caller === undefined) throw new Error("a call was not admitted");
  return call.procedure.perform(call, call.caller, decode);
}

export function logHttpCall(log: Log, { call, method, routeOptions }: FastifyRequest, reply: FastifyReply): void {
  logCall(log, {
    requestId: call.requestId,
    door: call.door,
    method: call.procedure?.path ?? `${method} ${routeOptions.url ?? "(no route)"}`,
    workspaceId: call.caller?.kind === "key" ? call.caller.workspaceId : undefined,
    startedAt: call.startedAt,
    failure: call.failure,
    refusedWith: reply.raw.statusCode >= 400 ? reply.raw.statusCode : undefined,
  });
}

/** Whatever was thrown on the HTTP port, Fastify's own failures included, in terms of the catalogue. */
export function toHttpFailure(error: unknown): Failure {
  const code = error instanceof Error && "code" in error ? String(error.code) : "";
  return frameworkFailures[code]?.() ?? toFailure(error);
}

const frameworkFailures: Record<string, () => Failure> = {
  FST_ERR_CTP_INVALID_MEDIA_TYPE: () =>
    mediaTypeUnsupported("The body must be JSON: send it with `Content-Type: application/json`."),
  FST_ERR_CTP_BODY_TOO_LARGE: () => payloadTooLarge("body", largestMessage),
  FST_ERR_CTP_INVALID_CONTENT_LENGTH: () =>
    invalidInput([{ location: "body", message: "is not as long as its Content-Length says" }]),
  FST_ERR_BAD_URL: () => invalidInput([{ location: "path", message: "is not a valid URL path" }]),
};
