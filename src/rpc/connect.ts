import type { Message } from "@bufbuild/protobuf";
import { createContextKey, createContextValues, type HandlerContext } from "@connectrpc/connect";
import { codeToHttpStatus, errorToJsonBytes } from "@connectrpc/connect/protocol-connect";
import { setTrailerStatus } from "@connectrpc/connect/protocol-grpc";
import { fastifyConnectPlugin } from "@connectrpc/connect-fastify";
import type { FastifyInstance, FastifyReply, FastifyRequest } from "fastify";
import { admitCall, type HttpCall, performCall } from "./http-call.js";
import { longestCallMs, type Procedure, toFailure } from "./pipeline.js";
import { toConnectError } from "./status.js";

const callKey = createContextKey<HttpCall | undefined>(undefined);

/** The Connect and gRPC-Web door, in a scope of its own on the HTTP port. */
export function connectDoor(procedures: readonly Procedure[], largestMessage: number) {
  const byPath = new Map(procedures.map((procedure) => [pathOf(procedure), procedure]));

  return async (scope: FastifyInstance): Promise<void> => {
    scope.removeAllContentTypeParsers(); // Connect reads the body itself, of every type it knows
    scope.setErrorHandler(writeRefusal);
    scope.addHook("onRequest", async (request) => {
      request.call.door = "connect";
      const procedure = byPath.get(request.routeOptions.url ?? "");
      if (procedure !== undefined) await admitCall(request, procedure);
    });
    await scope.register(fastifyConnectPlugin, {
      readMaxBytes: largestMessage,
      maxTimeoutMs: longestCallMs,
      jsonOptions: { ignoreUnknownFields: false },
      contextValues: ({ call }) => createContextValues().set(callKey, call),
      routes: (router) => {
        for (const { method } of procedures) router.rpc(method, handle);
      },
    });
  };
}

/** Connect has decoded the message by now; the rest of the way is the pipeline's. */
async function handle(message: Message, context: HandlerContext): Promise<Message> {
  const call = context.values.get(callKey);
  if (call === undefined) throw new Error("a Connect call came without its HTTP call");
  try {
    return await performCall(call, () => message);
  } catch (error) {
    call.failure = toFailure(error);
    throw toConnectError(call.failure, call.requestId);
  }
}

/** A call that was refused before Connect saw it is answered in the protocol that it came in. */
async function writeRefusal(error: unknown, request: FastifyRequest, reply: FastifyReply): Promise<void> {
  const { call } = request;
  call.failure = toFailure(error);
  const refusal = toConnectError(call.failure, call.requestId);
  const contentType = request.headers["content-type"] ?? "";
  if (contentType.startsWith("application/grpc")) {
    reply.headers(Object.fromEntries(setTrailerStatus(new Headers(), refusal)));
    await reply.code(200).type(contentType).send();
  } else {
    await reply
      .code(codeToHttpStatus(refusal.code))
      .type("application/json")
      .send(errorToJsonBytes(refusal, undefined));
  }
}

function pathOf({ method }: Procedure): string {
  return `/${method.parent.typeName}/${method.name}`;
}
