import {
  create,
  createRegistry,
  type DescFile,
  type DescService,
  fromBinary,
  type MessageInitShape,
  toBinary,
} from "@bufbuild/protobuf";
import { FileDescriptorProtoSchema } from "@bufbuild/protobuf/wkt";
import type { Server, ServerDuplexStream, StatusObject } from "@grpc/grpc-js";
import { Metadata, status } from "@grpc/grpc-js";
import { file_google_rpc_error_details } from "../../gen/google/rpc/error_details_pb.js";
import {
  type ServerReflectionRequest,
  ServerReflectionRequestSchema,
  ServerReflectionResponseSchema,
} from "../../gen/grpc/reflection/v1/reflection_pb.js";
import { grpcStatusOf, serviceOverloaded } from "../errors.js";
import { mintId } from "../ids.js";
import { toStatusBytes } from "../rpc/status.js";

type Answer = MessageInitShape<typeof ServerReflectionResponseSchema>["messageResponse"];

/** A stream of questions. Its answers are bytes. */
type Asking = ServerDuplexStream<ServerReflectionRequest, Buffer>;

/** v1alpha has the same messages as v1 under another name; older tools still ask for it. */
export const reflectionPaths = ["v1", "v1alpha"].map(
  (version) => `/grpc.reflection.${version}.ServerReflection/ServerReflectionInfo`,
);

/**
 * Server reflection, so that `buf curl` and grpcurl work without the proto files. By hand, from the descriptors we have
 * in memory: @grpc/reflection reads .proto files instead, and buf curl cannot resolve what it answers.
 *
 * @param admits whether there is time for a request: a stream brings many, and anybody may open one
 * @param most how many requests a stream may bring
 */
export function addReflection(
  server: Server,
  services: readonly DescService[],
  admits: () => boolean,
  most: number,
): void {
  const answer = createAnswerer(services);
  const tooMany = {
    code: status.RESOURCE_EXHAUSTED,
    details: `A reflection stream takes ${most} requests: open another for more.`,
  };

  function serve(stream: Asking): void {
    let requests = 0;
    stream.on("data", read);
    stream.on("end", () => stream.end());

    function read(request: ServerReflectionRequest): void {
      requests += 1;
      if (requests > most) end(tooMany);
      else if (!admits()) end(overloaded());
      else {
        // The next is read when this answer has gone: of a client that does not read, one is held.
        stream.pause();
        stream.write(answer(request), () => stream.resume());
      }
    }

    function end(why: Partial<StatusObject>): void {
      stream.off("data", read);
      stream.emit("error", why); // so grpc-js has a stream ended with a status
    }
  }

  for (const path of reflectionPaths) {
    server.register(
      path,
      serve,
      (response: Buffer) => response,
      (bytes) => fromBinary(ServerReflectionRequestSchema, bytes),
      "bidi",
    );
  }
}

/** Answers with the bytes of a response. What is long of it is written once: anybody may ask, and often. */
function createAnswerer(services: readonly DescService[]): (request: ServerReflectionRequest) => Buffer {
  // No method names the details of errors, yet who reads an error wants to know them.
  const roots = [...services.map(({ file }) => file), file_google_rpc_error_details];
  const files = new Map([...closure(roots)].map((file) => [`${file.name}.proto`, file]));
  const registry = createRegistry(...files.values());
  const written = new Map<DescFile, Buffer>();

  function writtenFile(file: DescFile): Buffer {
    const known = written.get(file);
    if (known !== undefined) return known;
    const fileDescriptorProto = [...closure([file])].map((each) => toBinary(FileDescriptorProtoSchema, each.proto));
    const bytes = write({ messageResponse: { case: "fileDescriptorResponse", value: { fileDescriptorProto } } });
    written.set(file, bytes);
    return bytes;
  }

  function toAnswer(file: DescFile | undefined, name: string): Buffer {
    return file ? writtenFile(file) : failure(status.NOT_FOUND, `not found: ${name}`);
  }

  const service = services.map(({ typeName: name }) => ({ name }));
  const listed = write({ messageResponse: { case: "listServicesResponse", value: { service } } });

  /** A symbol is a type, a service, or a member of one. */
  const fileOfSymbol = (symbol: string) => (registry.get(symbol) ?? registry.get(symbol.replace(/\.[^.]*$/, "")))?.file;

  function answerOf({ messageRequest: asked }: ServerReflectionRequest): Buffer {
    switch (asked.case) {
      case "listServices":
        return listed;
      case "fileByFilename":
        return toAnswer(files.get(asked.value), asked.value);
      case "fileContainingSymbol":
        return toAnswer(fileOfSymbol(asked.value), asked.value);
      case "fileContainingExtension": {
        const { containingType, extensionNumber } = asked.value;
        const extendee = registry.getMessage(containingType);
        const extension = extendee && registry.getExtensionFor(extendee, extensionNumber);
        return toAnswer(extension?.file, `${containingType}:${extensionNumber}`);
      }
      default:
        return failure(status.UNIMPLEMENTED, "this server does not answer such a reflection request");
    }
  }

  // The parts of a message can be written apart.
  return (originalRequest) =>
    Buffer.concat([write({ validHost: originalRequest.host, originalRequest }), answerOf(originalRequest)]);
}

function write(response: MessageInitShape<typeof ServerReflectionResponseSchema>): Buffer {
  return Buffer.from(toBinary(ServerReflectionResponseSchema, create(ServerReflectionResponseSchema, response)));
}

function failure(errorCode: number, errorMessage: string): Buffer {
  const messageResponse: Answer = { case: "errorResponse", value: { errorCode, errorMessage } };
  return write({ messageResponse });
}

/** The files and all that they import. */
function closure(files: readonly DescFile[], found = new Set<DescFile>()): Set<DescFile> {
  for (const file of files) {
    if (found.has(file)) continue;
    found.add(file);
    closure(file.dependencies, found);
  }
  return found;
}

function overloaded(): StatusObject {
  const failure = serviceOverloaded();
  const requestId = mintId("req");
  const metadata = new Metadata();
  metadata.set("x-request-id", requestId);
  metadata.set("grpc-status-details-bin", Buffer.from(toStatusBytes(failure, requestId)));
  return { code: Number(grpcStatusOf(failure.code)), details: failure.detail, metadata };
}
