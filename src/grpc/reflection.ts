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

type MessageResponse = MessageInitShape<typeof ServerReflectionResponseSchema>["messageResponse"];

/** A reflection stream. Its responses are already encoded. */
type ReflectionStream = ServerDuplexStream<ServerReflectionRequest, Buffer>;

/** v1alpha has the same messages as v1 under another name. Older tools still use it. */
export const reflectionPaths = ["v1", "v1alpha"].map(
  (version) => `/grpc.reflection.${version}.ServerReflection/ServerReflectionInfo`,
);

/**
 * Server reflection, so that `buf curl` and grpcurl work without the proto files. It serves the descriptors in memory.
 * @grpc/reflection reads .proto files instead, and buf curl cannot resolve its responses.
 *
 * @param acceptsLoad whether the event loop has capacity for a request. Each request is checked, because one stream
 *   brings many, and opening it needs no credential
 * @param maxRequests the maximum number of requests of a stream
 */
export function addReflection(
  server: Server,
  services: readonly DescService[],
  acceptsLoad: () => boolean,
  maxRequests: number,
): void {
  const respond = createResponder(services);
  const tooMany = {
    code: status.RESOURCE_EXHAUSTED,
    details: `A reflection stream accepts at most ${maxRequests} requests; open another stream for more.`,
  };

  function serve(stream: ReflectionStream): void {
    let requests = 0;
    stream.on("data", read);
    stream.on("end", () => stream.end());

    function read(request: ServerReflectionRequest): void {
      requests += 1;
      if (requests > maxRequests) end(tooMany);
      else if (!acceptsLoad()) end(overloaded());
      else {
        // The next request is read once this response is sent. For a client that does not read, only one is buffered.
        stream.pause();
        stream.write(respond(request), () => stream.resume());
      }
    }

    function end(reason: Partial<StatusObject>): void {
      stream.off("data", read);
      stream.emit("error", reason); // how grpc-js ends a stream with a status
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

/**
 * Returns encoded responses. Their large parts are encoded only once, because requests need no credential and may be
 * frequent.
 */
function createResponder(services: readonly DescService[]): (request: ServerReflectionRequest) => Buffer {
  // No method refers to the types of error details, but clients need them to decode an error.
  const roots = [...services.map(({ file }) => file), file_google_rpc_error_details];
  const files = new Map([...closure(roots)].map((file) => [`${file.name}.proto`, file]));
  const registry = createRegistry(...files.values());
  const encodedFiles = new Map<DescFile, Buffer>();

  function encodeFile(file: DescFile): Buffer {
    const cached = encodedFiles.get(file);
    if (cached !== undefined) return cached;
    const fileDescriptorProto = [...closure([file])].map((each) => toBinary(FileDescriptorProtoSchema, each.proto));
    const bytes = encode({ messageResponse: { case: "fileDescriptorResponse", value: { fileDescriptorProto } } });
    encodedFiles.set(file, bytes);
    return bytes;
  }

  function fileResponse(file: DescFile | undefined, name: string): Buffer {
    return file ? encodeFile(file) : errorResponse(status.NOT_FOUND, `not found: ${name}`);
  }

  const service = services.map(({ typeName: name }) => ({ name }));
  const serviceList = encode({ messageResponse: { case: "listServicesResponse", value: { service } } });

  /** A symbol is a type, a service, or a member of one. */
  const fileOfSymbol = (symbol: string) => (registry.get(symbol) ?? registry.get(symbol.replace(/\.[^.]*$/, "")))?.file;

  function responseTo({ messageRequest }: ServerReflectionRequest): Buffer {
    switch (messageRequest.case) {
      case "listServices":
        return serviceList;
      case "fileByFilename":
        return fileResponse(files.get(messageRequest.value), messageRequest.value);
      case "fileContainingSymbol":
        return fileResponse(fileOfSymbol(messageRequest.value), messageRequest.value);
      case "fileContainingExtension": {
        const { containingType, extensionNumber } = messageRequest.value;
        const extendee = registry.getMessage(containingType);
        const extension = extendee && registry.getExtensionFor(extendee, extensionNumber);
        return fileResponse(extension?.file, `${containingType}:${extensionNumber}`);
      }
      default:
        return errorResponse(status.UNIMPLEMENTED, "this kind of reflection request is not supported");
    }
  }

  // Protobuf fields can be encoded separately and concatenated.
  return (originalRequest) =>
    Buffer.concat([encode({ validHost: originalRequest.host, originalRequest }), responseTo(originalRequest)]);
}

function encode(response: MessageInitShape<typeof ServerReflectionResponseSchema>): Buffer {
  return Buffer.from(toBinary(ServerReflectionResponseSchema, create(ServerReflectionResponseSchema, response)));
}

function errorResponse(errorCode: number, errorMessage: string): Buffer {
  const messageResponse: MessageResponse = { case: "errorResponse", value: { errorCode, errorMessage } };
  return encode({ messageResponse });
}

/** The files and everything that they import, directly or indirectly. */
function closure(files: readonly DescFile[], found = new Set<DescFile>()): Set<DescFile> {
  for (const file of files) {
    if (found.has(file)) continue;
    found.add(file);
    closure(file.dependencies, found);
  }
  return found;
}

function overloaded(): StatusObject {
  const error = serviceOverloaded();
  const requestId = mintId("req");
  const metadata = new Metadata();
  metadata.set("x-request-id", requestId);
  metadata.set("grpc-status-details-bin", Buffer.from(toStatusBytes(error, requestId)));
  return { code: Number(grpcStatusOf(error.code)), details: error.detail, metadata };
}
