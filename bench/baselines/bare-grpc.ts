// grpc-js with its defaults and one handler, which decodes the same request and encodes the same response with the same
// code.
import { fromBinary, toBinary } from "@bufbuild/protobuf";
import { Server, ServerCredentials, type sendUnaryData } from "@grpc/grpc-js";
import {
  KeysService,
  VerifyKeyRequestSchema,
  type VerifyKeyResponse,
  VerifyKeyResponseSchema,
} from "../../gen/latchkey/v1/keys_service_pb.js";
import { fixedResponse, printAddress } from "./response.js";

const fixed = fromBinary(VerifyKeyResponseSchema, Buffer.from(fixedResponse(), "base64"));
const server = new Server();
server.register(
  `/${KeysService.typeName}/${KeysService.method.verifyKey.name}`,
  (_call: unknown, respond: sendUnaryData<VerifyKeyResponse>) => respond(null, fixed),
  (response) => Buffer.from(toBinary(VerifyKeyResponseSchema, response)),
  (bytes) => fromBinary(VerifyKeyRequestSchema, bytes),
  "unary",
);
server.bindAsync("127.0.0.1:0", ServerCredentials.createInsecure(), (error, port) => {
  if (error) throw error;
  printAddress(`127.0.0.1:${port}`);
});
