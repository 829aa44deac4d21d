// The same handler on connect-node, set up for gRPC as its documentation says: on Node's HTTP/2 server.
import { createServer } from "node:http2";
import type { AddressInfo } from "node:net";
import { fromBinary } from "@bufbuild/protobuf";
import { connectNodeAdapter } from "@connectrpc/connect-node";
import { KeysService, VerifyKeyResponseSchema } from "../../gen/latchkey/v1/keys_service_pb.js";
import { fixedResponse, printAddress } from "./response.js";

const response = fromBinary(VerifyKeyResponseSchema, Buffer.from(fixedResponse(), "base64"));
const server = createServer(
  connectNodeAdapter({
    connect: false,
    grpcWeb: false,
    routes: (router) => router.rpc(KeysService.method.verifyKey, () => response),
  }),
);
server.listen(0, "127.0.0.1", () => printAddress(`127.0.0.1:${(server.address() as AddressInfo).port}`));
