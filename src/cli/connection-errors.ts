import { Code, ConnectError, type Transport } from "@connectrpc/connect";
import { printable } from "./output.js";

/** Thrown if a call gets no response. The message says what is wrong and what to do. */
export class Unreachable extends Error {
  override readonly name = "Unreachable";
}

/** Wraps a transport to this address: a call without a response throws Unreachable. */
export function explainConnectionErrors(transport: Transport, address: URL): Transport {
  const rethrow = (error: unknown) => {
    throw toUnreachable(error, address) ?? error;
  };
  return {
    unary: (...call) => transport.unary(...call).catch(rethrow),
    stream: (...call) => transport.stream(...call).catch(rethrow),
  };
}

/** Undefined if the error is the response of a service. */
function toUnreachable(error: unknown, address: URL): Unreachable | undefined {
  if (!(error instanceof ConnectError) || error.details.length > 0) return undefined;
  const cause = error.cause as ConnectionError | undefined;
  const explain = explanations[cause?.code ?? ""] ?? (cause?.code ? explainTls(cause.code) : byStatus[error.code]);
  return (
    explain && new Unreachable(printable(explain(address, cause ?? { message: error.rawMessage })), { cause: error })
  );
}

/** An error of Node's network, TLS or HTTP/2 modules. */
interface ConnectionError {
  readonly message: string;
  readonly code?: string;
  /** Of an OpenSSL error: its text, without the name of a source file. */
  readonly reason?: string;
  /** The certificate that does not match the host name. */
  readonly cert?: { readonly subjectaltname?: string };
}

type Explain = (address: URL, cause: ConnectionError) => string;

const notListening: Explain = ({ host }) =>
  `Nothing listens at ${host}. Start the service with \`latchkey serve\`, or give the address of its gRPC port with --address or LATCHKEY_ADDRESS.`;

const unknownHost: Explain = ({ hostname }) =>
  `The host name ${hostname} cannot be resolved. Correct it in --address or LATCHKEY_ADDRESS, or check the DNS of this machine.`;

const noRoute: Explain = ({ host }) =>
  `No connection to ${host} is possible from this machine. Check the address in --address or LATCHKEY_ADDRESS, and the firewalls between.`;

const noResponse: Explain = ({ host }) =>
  `The service at ${host} did not respond in time. Check that it is ready, and that ${host} is its gRPC port.`;

const withoutTls: Explain = ({ host }) =>
  `The service at ${host} does not use TLS. Give its address as http://${host} with --address or LATCHKEY_ADDRESS.`;

/**
 * A TLS port closes a connection without TLS, or with a client certificate that it does not trust. A server that is
 * shutting down closes all.
 */
const closed: Explain = ({ host, protocol }) =>
  `${host} closed the connection. ${protocol === "http:" ? tlsHint(host) : clientCertificateHint} Otherwise, check that ${host} is the gRPC port of the service, and that the service is running.`;

const tlsHint = (host: string) =>
  `If the service uses TLS, give its address as https://${host} with --address or LATCHKEY_ADDRESS, and its CA with LATCHKEY_CA_FILE.`;

const clientCertificateHint =
  "If the service requires a client certificate of a CA that it trusts, set LATCHKEY_CERT_FILE and LATCHKEY_KEY_FILE.";

const notGrpc: Explain = ({ host }, { reason, message }) =>
  `${host} does not speak gRPC (${reason ?? message}). It may be the HTTP port of the service. Give the address of the gRPC port, by default 50051, with --address or LATCHKEY_ADDRESS.`;

const untrusted: Explain = ({ host }) =>
  `This machine does not trust the certificate of ${host}. Set LATCHKEY_CA_FILE to the file of the CA that signed it or, if it is self-signed, to the file of the certificate itself.`;

const otherName: Explain = ({ host, hostname }, cause) => {
  const names = cause.cert?.subjectaltname;
  return `The certificate of ${host} is not valid for the name ${hostname}${names ? `, but for ${names}` : ""}. Use a name of the certificate in --address or LATCHKEY_ADDRESS, or issue a certificate for ${hostname}.`;
};

const expired: Explain = ({ host }) =>
  `The certificate of ${host} has expired, or is not valid yet. Renew it, or correct the clock of this machine.`;

const clientCertificate: Explain = ({ host }) =>
  `The service at ${host} requires a client certificate of a CA that it trusts. Set LATCHKEY_CERT_FILE and LATCHKEY_KEY_FILE.`;

const invalidFiles: Explain = (_address, cause) =>
  `LATCHKEY_CERT_FILE and LATCHKEY_KEY_FILE must be a certificate and its key in PEM format (${cause.reason ?? cause.code}).`;

/** By the code of Node's error. OpenSSL has several codes for one mistake, and its versions differ. */
const explanations: Readonly<Record<string, Explain>> = {
  ECONNREFUSED: notListening,
  ENOTFOUND: unknownHost,
  EAI_AGAIN: unknownHost,
  ETIMEDOUT: noRoute,
  EHOSTUNREACH: noRoute,
  ENETUNREACH: noRoute,
  ECONNRESET: closed,
  EPIPE: closed,
  ERR_HTTP2_ERROR: notGrpc,
  ERR_HTTP2_SESSION_ERROR: closed,
  ERR_SSL_WRONG_VERSION_NUMBER: withoutTls,
  ERR_SSL_PACKET_LENGTH_TOO_LONG: withoutTls,
  ERR_SSL_TLSV1_ALERT_NO_APPLICATION_PROTOCOL: notGrpc,
  DEPTH_ZERO_SELF_SIGNED_CERT: untrusted,
  SELF_SIGNED_CERT_IN_CHAIN: untrusted,
  UNABLE_TO_GET_ISSUER_CERT: untrusted,
  UNABLE_TO_GET_ISSUER_CERT_LOCALLY: untrusted,
  UNABLE_TO_VERIFY_LEAF_SIGNATURE: untrusted,
  CERT_SIGNATURE_FAILURE: untrusted,
  ERR_TLS_CERT_ALTNAME_INVALID: otherName,
  CERT_HAS_EXPIRED: expired,
  CERT_NOT_YET_VALID: expired,
  ERR_SSL_TLSV13_ALERT_CERTIFICATE_REQUIRED: clientCertificate,
  ERR_SSL_SSLV3_ALERT_HANDSHAKE_FAILURE: clientCertificate,
  ERR_SSL_TLSV1_ALERT_UNKNOWN_CA: clientCertificate,
  ERR_SSL_SSLV3_ALERT_BAD_CERTIFICATE: clientCertificate,
  ERR_SSL_SSLV3_ALERT_CERTIFICATE_EXPIRED: clientCertificate,
  ERR_SSL_SSLV3_ALERT_CERTIFICATE_UNKNOWN: clientCertificate,
};

/** For errors without a code. Unimplemented and Unknown come from servers that are no gRPC servers. */
const byStatus: Partial<Record<Code, Explain>> = {
  [Code.Canceled]: closed,
  [Code.DeadlineExceeded]: noResponse,
  [Code.Unknown]: notGrpc,
  [Code.Unimplemented]: notGrpc,
};

/** Other errors of OpenSSL: ERR_OSSL_ for the files of this machine, ERR_SSL_ for the connection. */
function explainTls(code: string): Explain | undefined {
  if (code.startsWith("ERR_OSSL_")) return invalidFiles;
  if (!code.startsWith("ERR_SSL_")) return undefined;
  return ({ host }, cause) =>
    `TLS with ${host} failed: ${cause.reason ?? code}. Check that both sides have a TLS version in common.`;
}
