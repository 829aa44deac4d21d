import { create, toBinary } from "@bufbuild/protobuf";
import { Client, credentials, Metadata } from "@grpc/grpc-js";
import { KeysService, VerifyKeyRequestSchema } from "../gen/latchkey/v1/keys_service_pb.js";
import type { Bench } from "./bench.js";
import type { Latchkey, Scene } from "./latchkey.js";
import { type GrpcRequest, grpcRequest, openGrpcLoad } from "./load/grpc.js";
import { inTurn } from "./load/http.js";
import type { Side } from "./rounds.js";
import type { Server } from "./servers.js";

/** The RPC. */
export const verifyPath = `/${KeysService.typeName}/${KeysService.method.verifyKey.name}`;

/** What is asked for each key of a scene, and what Latchkey answered, encoded. */
export interface Exchange {
  readonly request: Uint8Array;
  readonly response: Uint8Array;
}

/** Has Latchkey verify each key of a scene once. The answers are not decoded: the load compares bytes. */
export async function verifyEach({ grpcPort }: Latchkey, { caller, keys }: Scene): Promise<Exchange[]> {
  const client = new Client(`127.0.0.1:${grpcPort}`, credentials.createInsecure());
  const metadata = new Metadata();
  metadata.set("authorization", `Bearer ${caller}`);
  const same = (bytes: Buffer) => bytes;
  const ask = (request: Buffer) =>
    new Promise<Buffer>((resolve, reject) => {
      client.makeUnaryRequest<Buffer, Buffer>(verifyPath, same, same, request, metadata, (error, response) =>
        response ? resolve(response) : reject(error),
      );
    });
  try {
    return await Promise.all(
      keys.map(async ({ secret }) => {
        const message = create(VerifyKeyRequestSchema, { key: secret, permissions: "documents.read" });
        const request = Buffer.from(toBinary(VerifyKeyRequestSchema, message));
        return { request, response: await ask(request) };
      }),
    );
  } finally {
    client.close();
  }
}

/** A server under a gRPC load of these exchanges in turn; one that has an answer of its own gives it to all. */
export async function grpcSide(
  bench: Bench,
  { server, port }: { server: Server; port: number },
  scene: Scene,
  exchanges: readonly Exchange[],
): Promise<Side> {
  const requests: GrpcRequest[] = exchanges.map(({ request, response }) => grpcRequest(request, response));
  const load = await openGrpcLoad({
    port,
    path: verifyPath,
    credential: scene.caller,
    connections: 5,
    streams: 10,
    next: inTurn(requests),
  });
  bench.defer(() => load.close());
  return { name: server.name, server, load };
}

/** The exchanges with a server that answers each request as Latchkey does the first. */
export function withOneAnswer(exchanges: readonly Exchange[]): { answer: string; exchanges: Exchange[] } {
  const response = exchanges[0]?.response ?? new Uint8Array();
  return {
    answer: Buffer.from(response).toString("base64"),
    exchanges: exchanges.map(({ request }) => ({ request, response })),
  };
}
