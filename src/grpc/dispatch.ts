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
import type { HandleStream } from "./unary.js";

/** A method that needs no credential. */
interface PublicMethod {
  /** Limits on the messages of one stream. */
  readonly messages: MessageLimits;
  /** The tenant that the memory budget charges for the stream. Undefined: an unauthenticated client. */
  readonly tenant: string | undefined;
  /** The memory of a stream in addition to that of every stream. */
  readonly extraBytes: number;
}

/**
 * The tenant of the memory budget that long-lived public streams are charged to. Charged as unauthenticated clients,
 * they could use up the memory of all other unauthenticated clients.
 */
const publicServices = "(public services)";

/** No valid request to these services is larger. */
const maxPublicMessageBytes = 4_096;

/** A reflection response: the files of a service with everything that they import. */
const reflectionResponseBytes = 128 * 1_024;

/**
 * Routes a stream by its headers. This process serves its own procedures itself, and grpc-js serves health and
 * reflection. Streams that are not gRPC calls go to grpc-js too, which reads nothing from them.
 */
export function createDispatch(
  handlers: ReadonlyMap<string, HandleStream>,
  reflection: boolean,
  limits: Limits,
  logCall: AccessLog,
): Dispatch {
  const mapProtocolErrors = createProtocolErrors(logCall);
  const publicMethods = publicMethodsOf(reflection, limits);
  const tooManyStreams = {
    "grpc-status": status.RESOURCE_EXHAUSTED,
    "grpc-message": encodeURI(
      `A connection can have at most ${limits.maxPublicStreams} health and reflection calls open at the same time.`,
    ),
  };

  return (open, headers, rawHeaders, passToGrpcJs) => {
    const path = isGrpc(headers) ? (headers[":path"] ?? "") : "";
    const handle = handlers.get(path);
    if (handle !== undefined) return handle(open, rawHeaders, () => refuseCompressed(headers));
    const method = publicMethods.get(path);
    if (method !== undefined && !open.markPublic(limits.maxPublicStreams)) {
      open.discard();
      respondTrailers(open.stream, tooManyStreams);
      return;
    }
    mapProtocolErrors(open);
    if (method === undefined) return passToGrpcJs();
    if (isCompressed(headers)) return open.end(compressedRequest());
    if (!open.reserve(method.tenant, method.extraBytes)) return open.end(serviceOverloaded());
    open.readMessages(method.messages);
    passToGrpcJs();
  };
}

function publicMethodsOf(reflection: boolean, limits: Limits): ReadonlyMap<string, PublicMethod> {
  const oneMessage: MessageLimits = {
    maxMessageBytes: maxPublicMessageBytes,
    maxMessages: 1,
    maxChunks: limits.maxMessageChunks,
  };
  const manyMessages: MessageLimits = { ...oneMessage, maxMessages: limits.maxReflectionRequests };
  const { check, list, watch } = Health.method;
  const unary = ({ name }: { name: string }) =>
    [`/${Health.typeName}/${name}`, { messages: oneMessage, tenant: undefined, extraBytes: 0 }] as const;
  const streaming = (path: string, messages: MessageLimits, extraBytes: number) =>
    [path, { messages, tenant: publicServices, extraBytes }] as const;
  return new Map<string, PublicMethod>([
    unary(check),
    unary(list),
    streaming(`/${Health.typeName}/${watch.name}`, oneMessage, 0),
    ...(reflection ? reflectionPaths.map((path) => streaming(path, manyMessages, reflectionResponseBytes)) : []),
  ]);
}

function isGrpc(headers: IncomingHttpHeaders): boolean {
  return headers["content-type"]?.startsWith("application/grpc") ?? false;
}

function refuseCompressed(headers: IncomingHttpHeaders): void {
  if (isCompressed(headers)) throw compressedRequest();
}
