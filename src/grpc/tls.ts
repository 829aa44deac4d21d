import type { SecureContextOptions } from "node:tls";
import { ServerCredentials } from "@grpc/grpc-js";
import type { Certificates } from "../net/certificates.js";
import type { Limits } from "../overload/limits.js";

/** Credentials of a gRPC server that presents the certificates of the moment to every new connection. */
export function reloadingCredentials(
  certificates: Certificates,
  { handshakeTimeoutMs: handshakeMs }: Limits,
): ServerCredentials {
  const credentials = new RenewedCredentials(
    { ...certificates.clients, handshakeTimeout: handshakeMs },
    certificates.current,
  );
  certificates.onChange((renewed) => credentials.renew(renewed));
  return credentials;
}

/** A class, because grpc-js takes nothing else: what it makes itself cannot be renewed, or only from its own watcher. */
class RenewedCredentials extends ServerCredentials {
  renew(options: SecureContextOptions): void {
    this.updateSecureContextOptions(options);
  }

  override _equals(other: ServerCredentials): boolean {
    return this === other;
  }
}
