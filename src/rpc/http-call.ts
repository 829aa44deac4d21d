import type { FastifyReply, FastifyRequest } from "fastify";
import type { Principal } from "../auth/principal.js";
import type { Failure } from "../errors.js";
import { mintId } from "../ids.js";
import { logCall } from "../observe/calls.js";
import type { Log } from "../observe/log.js";
import { longestCallMs, type Procedure } from "./pipeline.js";

/** A call on the HTTP port, from its first byte to its last; shared by the two doors there. */
export interface HttpCall {
  readonly requestId: string;
  readonly startedAt: number;
  readonly deadline: number;
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
  call.caller = await procedure.admit(raw.headersDistinct["authorization"] ?? [], call.deadline);
}

/** Decodes, validates and handles an admitted call. */
export function performCall(call: HttpCall, decode: Parameters<Procedure["perform"]>[1]) {
  if (call.procedure === undefined || call.caller === undefined) throw new Error("a call was not admitted");
  return call.procedure.perform(call.caller, decode, call.deadline);
}

export function logHttpCall(log: Log, { call, method, routeOptions }: FastifyRequest, reply: FastifyReply): void {
  const rpc = call.procedure?.method;
  logCall(log, {
    requestId: call.requestId,
    door: call.door,
    method: rpc ? `${rpc.parent.typeName}/${rpc.name}` : `${method} ${routeOptions.url ?? "(no route)"}`,
    workspaceId: call.caller?.kind === "key" ? call.caller.workspaceId : undefined,
    startedAt: call.startedAt,
    failure: call.failure,
    refusedWith: reply.raw.statusCode >= 400 ? reply.raw.statusCode : undefined,
  });
}
