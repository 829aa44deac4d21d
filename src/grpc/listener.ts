import { once } from "node:events";
import { type AddressInfo, createServer, type Server, type Socket } from "node:net";
import { createServer as createTlsServer } from "node:tls";
import type { Certificates } from "../net/certificates.js";
import type { Limits } from "../overload/limits.js";

/**
 * Creates the server that accepts the connections of the gRPC port, with TLS if there are certificates. grpc-js could
 * listen itself, but then only its private HTTP/2 server could stop listening without closing connections.
 *
 * @param accept gets each connection, after its TLS handshake
 */
export function createListener(
  certificates: Certificates | undefined,
  { handshakeTimeoutMs }: Limits,
  accept: (connection: Socket) => void,
): Server {
  if (certificates === undefined) return createServer(accept);
  const { current, clients } = certificates;
  const options = { ...current, ...clients, ALPNProtocols: ["h2"], handshakeTimeout: handshakeTimeoutMs };
  const server = createTlsServer(options, (connection) => {
    connection.on("error", ignore); // a connection without HTTP/2 has no other listener
    accept(connection);
  });
  server.on("tlsClientError", (_error, connection) => connection.destroy());
  certificates.onChange((renewed) => server.setSecureContext(renewed));
  return server;
}

/** Opens a server at an address. Resolves to the port number. */
export async function listen(server: Server, host: string, port: number): Promise<number> {
  server.listen({ host, port });
  await once(server, "listening");
  return (server.address() as AddressInfo).port;
}

function ignore(): void {}
