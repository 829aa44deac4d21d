import type { IncomingHttpHeaders } from "node:http2";
import { Metadata, status } from "@grpc/grpc-js";
import { Health } from "../../gen/grpc/health/v1/health_pb.js";
import { serviceOverloaded } from "../errors.js";
import type { LogCall } from "../observe/calls.js";
import type { Limits } from "../overload/limits.js";
import { saysCompressed } from "./call-head.js";
import type { Enter } from "./http2-server.js";
import { compressedRequest, type MessageLimits } from "./message-reader.js";
import { largestMessage } from "./pipeline.js";
import { reflectionPaths } from "./reflection.js";
import type { UnaryHandler } from "./unary-handler.js";
import { createAnswerUnread } from "./unread-calls.js";

/** A method that needs no credential: what its streams may bring, and what they take beyond what every stream takes. */
interface PublicMethod {
  readonly messages: MessageLimits;
  readonly tenant: string | undefined;
  readonly bytes: number;
}

/** In whose name memory is reserved for streams that stay: not in that of strangers, whom they would keep out. */
const publicServices = "(public services)";

/** No question to these services is longer. */
const publicMessageBytes = 4_096;

/** An answer of reflection: the files of a service with all that they import. */
const reflectionBytes = 128 * 1_024;

/**
 * Decides by the head of a call whether grpc-js gets it: whoever has no valid credential, or may not call this, brings no
 * message. What is no call at all is left to grpc-js, which reads nothing of it.
 */
export function createEnter(
  handlers: ReadonlyMap<string, UnaryHandler>,
  reflection: boolean,
  limits: Limits,
  logCall: LogCall,
): Enter {
  const answerUnread = createAnswerUnread(logCall);
  const messages: MessageLimits = { messageBytes: largestMessage, messages: 1, pieces: limits.messagePieces };
  const publicMethods = publicMethodsOf(reflection, limits);
  const tooMany = {
    code: status.RESOURCE_EXHAUSTED,
    details: `A connection may have ${limits.publicStreams} calls of health and reflection open at a time.`,
    metadata: new Metadata(),
  };

  return (open, headers, raw, goOn) => {
    const answer = answerUnread(open);
    const path = headers[":path"] ?? "";
    if (!isGrpc(headers)) return goOn();
    const handler = handlers.get(path);
    if (handler !== undefined) {
      open.readMessages(messages);
      return handler.admit(open, raw, () => refuseCompressed(headers), answer, goOn);
    }
    const method = publicMethods.get(path);
    if (method === undefined) return goOn();
    if (saysCompressed(headers)) return open.end(compressedRequest());
    if (!open.becomePublic(limits.publicStreams)) return answer(tooMany);
    if (!open.reserve(method.tenant, method.bytes)) return open.end(serviceOverloaded());
    open.readMessages(method.messages);
    goOn();
  };
}

function publicMethodsOf(reflection: boolean, limits: Limits): ReadonlyMap<string, PublicMethod> {
  const pieces = limits.messagePieces;
  const one: MessageLimits = { messageBytes: publicMessageBytes, messages: 1, pieces };
  const many: MessageLimits = { ...one, messages: limits.reflectionRequests };
  const { check, list, watch } = Health.method;
  const asks = ({ name }: { name: string }) =>
    [`/${Health.typeName}/${name}`, { messages: one, tenant: undefined, bytes: 0 }] as const;
  const stays = (path: string, messages: MessageLimits, bytes: number) =>
    [path, { messages, tenant: publicServices, bytes }] as const;
  return new Map<string, PublicMethod>([
    asks(check),
    asks(list),
    stays(`/${Health.typeName}/${watch.name}`, one, 0),
    ...(reflection ? reflectionPaths.map((path) => stays(path, many, reflectionBytes)) : []),
  ]);
}

function isGrpc(headers: IncomingHttpHeaders): boolean {
  return headers["content-type"]?.startsWith("application/grpc") ?? false;
}

function refuseCompressed(headers: IncomingHttpHeaders): void {
  if (saysCompressed(headers)) throw compressedRequest();
}
