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
import type { Server, ServerDuplexStream } from "@grpc/grpc-js";
import { status } from "@grpc/grpc-js";
import { file_google_rpc_error_details } from "../../gen/google/rpc/error_details_pb.js";
import {
  type ServerReflectionRequest,
  ServerReflectionRequestSchema,
  type ServerReflectionResponse,
  ServerReflectionResponseSchema,
} from "../../gen/grpc/reflection/v1/reflection_pb.js";

type Answer = MessageInitShape<typeof ServerReflectionResponseSchema>["messageResponse"];

/** v1alpha has the same messages as v1 under another name; older tools still ask for it. */
const paths = ["v1", "v1alpha"].map((version) => `/grpc.reflection.${version}.ServerReflection/ServerReflectionInfo`);

/**
 * Server reflection, so that `buf curl` and grpcurl work without the proto files. By hand, from the descriptors we have
 * in memory: @grpc/reflection reads .proto files instead, and buf curl cannot resolve what it answers.
 */
export function addReflection(server: Server, services: readonly DescService[]): void {
  const answer = createAnswerer(services);
  for (const path of paths) {
    server.register(
      path,
      (stream: ServerDuplexStream<ServerReflectionRequest, ServerReflectionResponse>) => {
        stream.on("data", (originalRequest: ServerReflectionRequest) => {
          const messageResponse = answer(originalRequest);
          const { host: validHost } = originalRequest;
          const response = create(ServerReflectionResponseSchema, { validHost, originalRequest, messageResponse });
          if (!stream.write(response)) {
            stream.pause();
            stream.once("drain", () => stream.resume());
          }
        });
        stream.on("end", () => stream.end());
      },
      (response) => Buffer.from(toBinary(ServerReflectionResponseSchema, response as ServerReflectionResponse)),
      (bytes) => fromBinary(ServerReflectionRequestSchema, bytes),
      "bidi",
    );
  }
}

function createAnswerer(services: readonly DescService[]): (request: ServerReflectionRequest) => Answer {
  // No method names the details of errors, yet who reads an error wants to know them.
  const roots = [...services.map(({ file }) => file), file_google_rpc_error_details];
  const files = new Map([...closure(roots)].map((file) => [`${file.name}.proto`, file]));
  // Encoded once: anybody may ask, and as often as they like.
  const encoded = new Map([...files.values()].map((file) => [file, toBinary(FileDescriptorProtoSchema, file.proto)]));

  function toAnswer(file: DescFile | undefined, name: string): Answer {
    if (file === undefined) return failure(status.NOT_FOUND, `not found: ${name}`);
    const fileDescriptorProto = [...closure([file])].flatMap((each) => encoded.get(each) ?? []);
    return { case: "fileDescriptorResponse", value: { fileDescriptorProto } };
  }
  const registry = createRegistry(...files.values());

  /** A symbol is a type, a service, or a member of one. */
  const fileOfSymbol = (symbol: string) => (registry.get(symbol) ?? registry.get(symbol.replace(/\.[^.]*$/, "")))?.file;

  return ({ messageRequest: asked }) => {
    switch (asked.case) {
      case "listServices":
        return { case: "listServicesResponse", value: { service: services.map(({ typeName: name }) => ({ name })) } };
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
  };
}

function failure(errorCode: number, errorMessage: string): Answer {
  return { case: "errorResponse", value: { errorCode, errorMessage } };
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
