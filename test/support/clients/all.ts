import { openConnectClient, openGrpcWebClient } from "./connect.js";
import { type GrpcClient, openGrpcClient } from "./grpc.js";
import { openHttpClient } from "./http.js";
import type { ProtocolClient } from "./protocol-client.js";

/** A client for each protocol of an application. */
export interface ProtocolClients {
  readonly grpc: GrpcClient;
  readonly http: ProtocolClient;
  readonly connect: ProtocolClient;
  readonly "grpc-web": ProtocolClient;
  close(): void;
}

/** Opens a real client for each protocol of an application. */
export function openProtocols({ httpUrl, grpcAddress }: { httpUrl: string; grpcAddress: string }): ProtocolClients {
  const protocols = {
    grpc: openGrpcClient(grpcAddress),
    http: openHttpClient(httpUrl),
    connect: openConnectClient(httpUrl),
    "grpc-web": openGrpcWebClient(httpUrl),
  };
  return {
    ...protocols,
    close: () => {
      for (const protocol of Object.values(protocols)) protocol.close();
    },
  };
}
