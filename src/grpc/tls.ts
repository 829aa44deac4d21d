import type { SecureContextOptions } from "node:tls";
import { ServerCredentials } from "@grpc/grpc-js";
import type { Certificates } from "../net/certificates.js";
import type { Limits } from "../overload/limits.js";

/** Credentials of a gRPC server that presents the current certificates to every new connection. */
export function reloadingCredentials(certificates: Certificates, { handshakeTimeoutMs }: Limits): ServerCredentials {
  const credentials = new RenewableCredentials(
    { ...certificates.clients, handshakeTimeout: handshakeTimeoutMs },
    certificates.current,
  );
  certificates.onChange((renewed) => credentials.renew(renewed));
  return credentials;
}

/**
 * A subclass, because grpc-js accepts nothing else. The credentials that it creates itself either cannot be renewed, or
 * only by its own file watcher.
 */
class RenewableCredentials extends ServerCredentials {
  renew(options: SecureContextOptions): void {
    this.updateSecureContextOptions(options);
  }

  override _equals(other: ServerCredentials): boolean {
    return this === other;
  }
}
