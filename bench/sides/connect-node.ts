// The same handler on connect-node, as its documentation has it for gRPC: on Node's HTTP/2 server.
import { createServer } from "node:http2";
import type { AddressInfo } from "node:net";
import { fromBinary } from "@bufbuild/protobuf";
import { connectNodeAdapter } from "@connectrpc/connect-node";
import { KeysService, VerifyKeyResponseSchema } from "../../gen/latchkey/v1/keys_service_pb.js";
import { givenAnswer, tellAddress } from "./answers.js";

const answer = fromBinary(VerifyKeyResponseSchema, Buffer.from(givenAnswer(), "base64"));
const server = createServer(
  connectNodeAdapter({
    connect: false,
    grpcWeb: false,
    routes: (router) => router.rpc(KeysService.method.verifyKey, () => answer),
  }),
);
server.listen(0, "127.0.0.1", () => tellAddress(`127.0.0.1:${(server.address() as AddressInfo).port}`));
