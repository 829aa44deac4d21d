import type { IncomingHttpHeaders } from "node:http2";
import { status } from "@grpc/grpc-js";
import { Health } from "../../gen/grpc/health/v1/health_pb.js";
import { serviceOverloaded } from "../errors.js";
import type { AccessLog } from "../observe/access-log.js";
import type { Limits } from "../overload/limits.js";
import type { Dispatch } from "./http2.js";
import { compressedRequest, type MessageLimits } from "./message-reader.js";
import { createProtocolErrors } from "./protocol-errors.js";
import { reflectionPaths } from "./reflection.js";
import { isCompressed } from "./request-headers.js";
import { respondTrailers } from "./response.js";
import type { HandleUnary } from "./unary.js";

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
 * Decides by the head of a stream who serves it: our procedures ourselves, health and reflection grpc-js. What is no call
 * at all is left to grpc-js, too, which reads nothing of it.
 */
export function createDispatch(
  handlers: ReadonlyMap<string, HandleUnary>,
  reflection: boolean,
  limits: Limits,
  logCall: AccessLog,
): Dispatch {
  const answerUnread = createProtocolErrors(logCall);
  const publicMethods = publicMethodsOf(reflection, limits);
  const tooMany = {
    "grpc-status": status.RESOURCE_EXHAUSTED,
    "grpc-message": encodeURI(
      `A connection may have ${limits.maxPublicStreams} calls of health and reflection open at a time.`,
    ),
  };

  return (open, headers, raw, goOn) => {
    const path = isGrpc(headers) ? (headers[":path"] ?? "") : "";
    const handle = handlers.get(path);
    if (handle !== undefined) return handle(open, raw, () => refuseCompressed(headers));
    const method = publicMethods.get(path);
    if (method !== undefined && !open.becomePublic(limits.maxPublicStreams)) {
      open.discard();
      respondTrailers(open.stream, tooMany);
      return;
    }
    answerUnread(open);
    if (method === undefined) return goOn();
    if (isCompressed(headers)) return open.end(compressedRequest());
    if (!open.reserve(method.tenant, method.bytes)) return open.end(serviceOverloaded());
    open.readMessages(method.messages);
    goOn();
  };
}

function publicMethodsOf(reflection: boolean, limits: Limits): ReadonlyMap<string, PublicMethod> {
  const pieces = limits.maxMessageChunks;
  const one: MessageLimits = { messageBytes: publicMessageBytes, messages: 1, pieces };
  const many: MessageLimits = { ...one, messages: limits.maxReflectionRequests };
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
  if (isCompressed(headers)) throw compressedRequest();
}
