// grpc-js as it comes, with one handler that decodes the same request and encodes the same answer by the same code.
import { fromBinary, toBinary } from "@bufbuild/protobuf";
import { Server, ServerCredentials, type sendUnaryData } from "@grpc/grpc-js";
import {
  KeysService,
  VerifyKeyRequestSchema,
  type VerifyKeyResponse,
  VerifyKeyResponseSchema,
} from "../../gen/latchkey/v1/keys_service_pb.js";
import { givenAnswer, tellAddress } from "./answers.js";

const answer = fromBinary(VerifyKeyResponseSchema, Buffer.from(givenAnswer(), "base64"));
const server = new Server();
server.register(
  `/${KeysService.typeName}/${KeysService.method.verifyKey.name}`,
  (_call: unknown, respond: sendUnaryData<VerifyKeyResponse>) => respond(null, answer),
  (response) => Buffer.from(toBinary(VerifyKeyResponseSchema, response)),
  (bytes) => fromBinary(VerifyKeyRequestSchema, bytes),
  "unary",
);
server.bindAsync("127.0.0.1:0", ServerCredentials.createInsecure(), (error, port) => {
  if (error) throw error;
  tellAddress(`127.0.0.1:${port}`);
});
