import { openConnectClient, openGrpcWebClient } from "./connect-client.js";
import { type GrpcClient, openGrpcClient } from "./grpc-client.js";
import { openHttpClient } from "./http-client.js";
import type { ProtocolClient } from "./protocol-client.js";

/** Every way into one application. */
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
