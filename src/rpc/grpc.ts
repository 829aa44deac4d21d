import { fromBinary, type Message, toBinary } from "@bufbuild/protobuf";
import {
  logVerbosity,
  Metadata,
  Server,
  ServerCredentials,
  type ServerUnaryCall,
  type sendUnaryData,
  setLogVerbosity,
} from "@grpc/grpc-js";
import { type Failure, grpcStatusOf, invalidInput, payloadTooLarge } from "../errors.js";
import { mintId } from "../ids.js";
import type { LogCall } from "../observe/calls.js";
import { largestMessage, longestCallMs, type Procedure, toFailure } from "./pipeline.js";
import { addReflection } from "./reflection.js";
import { toStatusBytes } from "./status.js";
import { writeOnce } from "./write-once.js";

/**
 * The gRPC door. Served by grpc-js, which answers several times the calls of Connect's own HTTP/2 server. Requests stay
 * bytes until the caller has been admitted.
 */
export function createGrpcServer(procedures: readonly Procedure[], logCall: LogCall): Server {
  setLogVerbosity(logVerbosity.NONE); // its failures reach us as errors; we say them once
  // grpc-js refuses what is too large without our details, so it is given some room above the limit that we check.
  const server = new Server({
    "grpc.max_receive_message_length": 4 * largestMessage,
    "grpc.max_concurrent_streams": 1_000,
    "grpc.enable_channelz": 0, // nobody is served these figures, and every call would pay for them
  });
  for (const procedure of procedures) {
    const { method, path } = procedure;
    server.register(
      path,
      createHandler(procedure, logCall),
      writeOnce((response) => Buffer.from(toBinary(method.output, response))) as (response: unknown) => Buffer,
      (bytes) => bytes,
      "unary",
    );
  }
  addReflection(server, [...new Set(procedures.map(({ method }) => method.parent))]);
  return server;
}

/** Opens the port and says which one it is. */
export function listenGrpc(server: Server, host: string, port: number): Promise<number> {
  const address = host.includes(":") ? `[${host}]:${port}` : `${host}:${port}`;
  return new Promise((resolve, reject) => {
    server.bindAsync(address, ServerCredentials.createInsecure(), (error, port) =>
      error ? reject(error) : resolve(port),
    );
  });
}

/** Lets running calls finish, until the deadline; a client that does not react cannot hold it up. */
export function closeGrpc(server: Server, deadlineMs: number): Promise<void> {
  return new Promise((resolve) => {
    const timer = setTimeout(() => {
      server.forceShutdown();
      resolve();
    }, deadlineMs);
    server.tryShutdown(() => {
      clearTimeout(timer);
      resolve();
    });
  });
}

function createHandler({ method, path, admit, perform }: Procedure, logCall: LogCall) {
  return async (call: ServerUnaryCall<Buffer, Message>, respond: sendUnaryData<Message>): Promise<void> => {
    const requestId = mintId("req");
    const startedAt = performance.now();
    const deadline = Math.min(Date.now() + longestCallMs, Number(call.getDeadline()));
    let workspaceId: string | undefined;
    let failure: Failure | undefined;
    try {
      const caller = await admit({ requestId, deadline }, call.metadata.get("authorization").map(String));
      if (caller.kind === "key") workspaceId = caller.workspaceId;
      const response = await perform({ requestId, deadline }, caller, () => decode(method.input, call.request));
      respond(null, response, trailers(requestId));
    } catch (error) {
      failure = toFailure(error);
      const metadata = trailers(requestId);
      metadata.set("grpc-status-details-bin", Buffer.from(toStatusBytes(failure, requestId)));
      respond({ code: Number(grpcStatusOf(failure.code)), details: failure.detail, metadata });
    }
    logCall({ requestId, door: "grpc", method: path, workspaceId, startedAt, failure });
  };
}

/** What cannot be decoded is the caller's mistake, not ours. */
function decode(schema: Procedure["method"]["input"], bytes: Uint8Array): Message {
  if (bytes.length > largestMessage) throw payloadTooLarge("body", largestMessage);
  try {
    return fromBinary(schema, bytes);
  } catch {
    throw invalidInput([{ location: "body", message: `is not a ${schema.typeName} message` }]);
  }
}

function trailers(requestId: string): Metadata {
  const metadata = new Metadata();
  metadata.set("x-request-id", requestId);
  return metadata;
}
