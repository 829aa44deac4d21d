import { grpcFrame } from "./grpc-streams.js";

/** The protocols, with both encodings of Connect. */
export const protocolNames = ["http", "grpc", "connect", "connect-proto", "grpc-web"] as const;
export type ProtocolName = (typeof protocolNames)[number];

/** Headers in order. Over HTTP/1.1, names may repeat. */
export type Headers = readonly (readonly [string, string])[];

/** An HTTP/1.1 request with valid framing. */
export interface RawHttpRequest {
  readonly by: "http";
  readonly verb: string;
  readonly path: string;
  readonly headers: Headers;
  readonly body: Buffer;
  /** Sent in chunks of these lengths, then the rest, without a Content-Length. */
  readonly pieces?: readonly number[];
}

/** Raw bytes for a socket. */
export interface RawBytes {
  readonly by: "socket";
  readonly bytes: Buffer;
  /** Whether the request is incomplete. The client then half-closes the connection. */
  readonly isTruncated: boolean;
}

/** An HTTP/2 stream. */
export interface RawStream {
  readonly by: "http2";
  readonly path: string;
  readonly headers: Headers;
  readonly body: Buffer;
}

export type RawRequest = RawHttpRequest | RawBytes | RawStream;

/** The paths of an operation. */
export interface OperationPaths {
  readonly routes: readonly { readonly verb: string; readonly path: string }[];
  /** Its path in gRPC, gRPC-Web and Connect. */
  readonly rpcPath: string;
}

/** A well-formed request of a protocol with this body. */
export function toRawRequest(
  protocol: ProtocolName,
  { routes, rpcPath }: OperationPaths,
  credential: string,
  body: Buffer,
): RawRequest {
  const authorization = ["authorization", `Bearer ${credential}`] as const;
  if (protocol === "grpc") {
    const headers = [authorization, ["content-type", "application/grpc+proto"], ["te", "trailers"]] as const;
    return { by: "http2", path: rpcPath, headers, body: grpcFrame(body) };
  }
  const [type, path] = {
    http: ["application/json", (routes.find(({ verb }) => verb === "POST") ?? { path: rpcPath }).path],
    connect: ["application/json", rpcPath],
    "connect-proto": ["application/proto", rpcPath],
    "grpc-web": ["application/grpc-web+proto", rpcPath],
  }[protocol] as [string, string];
  const framed = protocol === "grpc-web" ? grpcFrame(body) : body;
  return { by: "http", verb: "POST", path, headers: [authorization, ["content-type", type]], body: framed };
}

/** The raw HTTP/1.1 bytes of a request, with additional headers. The connection closes after it. */
export function encodeHttp1({ verb, path, headers }: RawHttpRequest, framing: Headers, body: Buffer): Buffer {
  const lines = [...headers, ...framing, ["host", "a"], ["connection", "close"]].map(
    ([name, value]) => `${name}: ${value}`,
  );
  return Buffer.concat([Buffer.from(`${verb} ${path} HTTP/1.1\r\n${lines.join("\r\n")}\r\n\r\n`, "latin1"), body]);
}

/** A request in human-readable form, without credentials and with long bodies truncated. */
export function describe(raw: RawRequest): string {
  return `${raw.by} ${partsOf(raw).join(" ")}`.replace(/Bearer [^\s"\\]+/g, "Bearer …");
}

function partsOf(raw: RawRequest): string[] {
  if (raw.by === "socket") return [shown(raw.bytes)];
  const headers = JSON.stringify(raw.headers).slice(0, maxShown);
  const pieces = raw.by === "http" && raw.pieces ? [`in chunks of ${raw.pieces}`] : [];
  return [raw.by === "http" ? raw.verb : "POST", raw.path.slice(0, maxShown), headers, shown(raw.body), ...pieces];
}

const maxShown = 600;

/** Text if the bytes are text, otherwise hex. */
function shown(bytes: Buffer): string {
  const text = bytes.toString();
  const isText = Buffer.from(text).equals(bytes) && !/[^\P{Cc}\r\n]/u.test(text);
  const full = isText ? JSON.stringify(text) : `hex ${bytes.toString("hex")}`;
  return full.length <= maxShown ? full : `${full.slice(0, maxShown)}… (${bytes.length} bytes)`;
}
