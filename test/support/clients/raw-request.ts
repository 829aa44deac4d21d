/** The protocols, with both encodings of Connect. */
export const protocolNames = ["http", "grpc", "connect", "connect-proto", "grpc-web"] as const;
export type ProtocolName = (typeof protocolNames)[number];

/** Headers in order. Over HTTP/1.1, names may repeat. */
export type Headers = readonly (readonly [string, string])[];

/** An HTTP/1.1 request with valid framing. */
export interface HttpSent {
  readonly by: "http";
  readonly verb: string;
  readonly path: string;
  readonly headers: Headers;
  readonly body: Buffer;
  /** Sent in chunks of these lengths, then the rest, without a Content-Length. */
  readonly pieces?: readonly number[];
}

/** Raw bytes for a socket. */
export interface BytesSent {
  readonly by: "socket";
  readonly bytes: Buffer;
  /** Whether the request is incomplete. The client then half-closes the connection. */
  readonly isTruncated: boolean;
}

/** An HTTP/2 stream. */
export interface StreamSent {
  readonly by: "http2";
  readonly path: string;
  readonly headers: Headers;
  readonly body: Buffer;
}

export type Sent = HttpSent | BytesSent | StreamSent;

/** The paths of an operation. */
export interface OperationPaths {
  readonly routes: readonly { readonly verb: string; readonly path: string }[];
  /** Its path in gRPC, gRPC-Web and Connect. */
  readonly rpcPath: string;
}

/** A well-formed request of a protocol with this body. */
export function sentTo(
  protocol: ProtocolName,
  { routes, rpcPath }: OperationPaths,
  credential: string,
  body: Buffer,
): Sent {
  const authorization = ["authorization", `Bearer ${credential}`] as const;
  if (protocol === "grpc") {
    const headers = [authorization, ["content-type", "application/grpc+proto"], ["te", "trailers"]] as const;
    return { by: "http2", path: rpcPath, headers, body: frame(body) };
  }
  const [type, path] = {
    http: ["application/json", (routes.find(({ verb }) => verb === "POST") ?? { path: rpcPath }).path],
    connect: ["application/json", rpcPath],
    "connect-proto": ["application/proto", rpcPath],
    "grpc-web": ["application/grpc-web+proto", rpcPath],
  }[protocol] as [string, string];
  const framed = protocol === "grpc-web" ? frame(body) : body;
  return { by: "http", verb: "POST", path, headers: [authorization, ["content-type", type]], body: framed };
}

/** A gRPC frame: one byte of flags, the length, the message. */
export function frame(message: Uint8Array, flags = 0, length = message.length): Buffer {
  const header = Buffer.alloc(5);
  header.writeUInt8(flags);
  header.writeUInt32BE(length, 1);
  return Buffer.concat([header, message]);
}

/** The raw HTTP/1.1 bytes of a request, with additional headers. The connection closes after it. */
export function wireOf({ verb, path, headers }: HttpSent, framing: Headers, body: Buffer): Buffer {
  const lines = [...headers, ...framing, ["host", "a"], ["connection", "close"]].map(
    ([name, value]) => `${name}: ${value}`,
  );
  return Buffer.concat([Buffer.from(`${verb} ${path} HTTP/1.1\r\n${lines.join("\r\n")}\r\n\r\n`, "latin1"), body]);
}

/** A request in human-readable form, without credentials and with long bodies truncated. */
export function describe(sent: Sent): string {
  return `${sent.by} ${partsOf(sent).join(" ")}`.replace(/Bearer [^\s"\\]+/g, "Bearer …");
}

function partsOf(sent: Sent): string[] {
  if (sent.by === "socket") return [shown(sent.bytes)];
  const headers = JSON.stringify(sent.headers).slice(0, maxShown);
  const pieces = sent.by === "http" && sent.pieces ? [`in chunks of ${sent.pieces}`] : [];
  return [sent.by === "http" ? sent.verb : "POST", sent.path.slice(0, maxShown), headers, shown(sent.body), ...pieces];
}

const maxShown = 600;

/** Text if the bytes are text, otherwise hex. */
function shown(bytes: Buffer): string {
  const text = bytes.toString();
  const isText = Buffer.from(text).equals(bytes) && !/[^\P{Cc}\r\n]/u.test(text);
  const full = isText ? JSON.stringify(text) : `hex ${bytes.toString("hex")}`;
  return full.length <= maxShown ? full : `${full.slice(0, maxShown)}… (${bytes.length} bytes)`;
}
