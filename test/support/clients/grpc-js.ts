import { type CallOptions, type ChannelOptions, Client, credentials, Metadata, type ServiceError } from "@grpc/grpc-js";
import type { HeaderLines } from "./headers.js";

/** A response to a grpc-js client, without decoding. */
export interface GrpcJsResponse {
  /** The encoded message; empty if the call failed. */
  readonly bytes: Buffer;
  readonly trailers: Metadata;
  readonly error: ServiceError | undefined;
}

/** A client's certificate and the CA that it trusts, in PEM format. */
export interface Trust {
  readonly ca: string;
  readonly cert?: string;
  readonly key?: string;
}

/** A grpc-js client; over TLS if it is given what it trusts. */
export function openGrpcJs(address: string, trust?: Trust, options: ChannelOptions = {}): Client {
  const [ca, cert, key] = [trust?.ca, trust?.cert, trust?.key].map((pem) => (pem ? Buffer.from(pem) : null));
  return new Client(address, trust ? credentials.createSsl(ca, key, cert) : credentials.createInsecure(), options);
}

/** Makes a unary call with an encoded message, by default the empty one. Resolves also if the call fails. */
export function callUnary(
  client: Client,
  path: string,
  headers: HeaderLines,
  message: Uint8Array = empty,
  options: CallOptions = {},
): Promise<GrpcJsResponse> {
  const metadata = new Metadata();
  for (const [name, value] of headers) metadata.add(name, value);
  return new Promise((resolve) => {
    let received: Pick<GrpcJsResponse, "bytes" | "error">;
    const call = client.makeUnaryRequest(path, toBuffer, asIs, message, metadata, options, (error, bytes) => {
      received = { bytes: bytes ?? empty, error: error ?? undefined };
    });
    // The status event follows the callback, and has the trailers.
    call.on("status", ({ metadata: trailers }) => resolve({ ...received, trailers }));
  });
}

/** Makes a unary call on a new connection. */
export function callUnaryOnce(
  address: string,
  path: string,
  headers: HeaderLines,
  message?: Uint8Array,
  options?: CallOptions,
): Promise<GrpcJsResponse> {
  const client = openGrpcJs(address);
  return callUnary(client, path, headers, message, options).finally(() => client.close());
}

const empty = Buffer.alloc(0);
const toBuffer = (message: Uint8Array) => Buffer.from(message);
const asIs = (message: Buffer) => message;
