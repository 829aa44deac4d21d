import { create, toBinary } from "@bufbuild/protobuf";
import { Client, credentials, Metadata } from "@grpc/grpc-js";
import { KeysService, VerifyKeyRequestSchema } from "../gen/latchkey/v1/keys_service_pb.js";
import type { Bench } from "./bench.js";
import type { Fixture, Latchkey } from "./latchkey.js";
import { type GrpcRequest, grpcRequest, openGrpcLoad } from "./load/grpc.js";
import { inTurn } from "./load/http.js";
import type { Side } from "./rounds.js";
import type { Server } from "./servers.js";

/** The HTTP/2 path of the RPC. */
export const verifyPath = `/${KeysService.typeName}/${KeysService.method.verifyKey.name}`;

/** An encoded request for one key of a fixture, and the encoded response of Latchkey. */
export interface Exchange {
  readonly request: Uint8Array;
  readonly response: Uint8Array;
}

/** Verifies each key of a fixture once. The responses are not decoded, because the load compares bytes. */
export async function verifyEach({ grpcPort }: Latchkey, { caller, keys }: Fixture): Promise<Exchange[]> {
  const client = new Client(`127.0.0.1:${grpcPort}`, credentials.createInsecure());
  const metadata = new Metadata();
  metadata.set("authorization", `Bearer ${caller}`);
  const identity = (bytes: Buffer) => bytes;
  const call = (request: Buffer) =>
    new Promise<Buffer>((resolve, reject) => {
      client.makeUnaryRequest<Buffer, Buffer>(verifyPath, identity, identity, request, metadata, (error, response) =>
        response ? resolve(response) : reject(error),
      );
    });
  try {
    return await Promise.all(
      keys.map(async ({ secret }) => {
        const message = create(VerifyKeyRequestSchema, { key: secret, permissions: "documents.read" });
        const request = Buffer.from(toBinary(VerifyKeyRequestSchema, message));
        return { request, response: await call(request) };
      }),
    );
  } finally {
    client.close();
  }
}

/** Puts a gRPC load on a server that cycles through these exchanges. */
export async function grpcSide(
  bench: Bench,
  { server, port }: { server: Server; port: number },
  fixture: Fixture,
  exchanges: readonly Exchange[],
): Promise<Side> {
  const requests: GrpcRequest[] = exchanges.map(({ request, response }) => grpcRequest(request, response));
  const load = await openGrpcLoad({
    port,
    path: verifyPath,
    credential: fixture.caller,
    connections: 5,
    streams: 10,
    next: inTurn(requests),
  });
  bench.defer(() => load.close());
  return { name: server.name, server, load };
}

/** The exchanges for a server that returns Latchkey's first response to every request. */
export function withOneResponse(exchanges: readonly Exchange[]): { encodedResponse: string; exchanges: Exchange[] } {
  const response = exchanges[0]?.response ?? new Uint8Array();
  return {
    encodedResponse: Buffer.from(response).toString("base64"),
    exchanges: exchanges.map(({ request }) => ({ request, response })),
  };
}
