import type { Operation } from "./operations.js";

/** The protocols, with Connect in both its encodings. */
export const protocolNames = ["http", "grpc", "connect", "connect-proto", "grpc-web"] as const;
export type ProtocolName = (typeof protocolNames)[number];

/** Headers in their order; over HTTP/1.1, a name may come more than once. */
export type Headers = readonly (readonly [string, string])[];

/** A request by HTTP/1.1 whose framing is sound. */
export interface HttpSent {
  readonly by: "http";
  readonly verb: string;
  readonly path: string;
  readonly headers: Headers;
  readonly body: Buffer;
  /** Sent in pieces of these lengths, and the rest, without a Content-Length. */
  readonly pieces?: readonly number[];
}

/** Bytes for a socket. */
export interface BytesSent {
  readonly by: "socket";
  readonly bytes: Buffer;
  /** Whether the request is not complete, and nothing more comes: then the client says that it has finished. */
  readonly isCut: boolean;
}

/** A stream of HTTP/2. */
export interface StreamSent {
  readonly by: "http2";
  readonly path: string;
  readonly headers: Headers;
  readonly body: Buffer;
}

export type Sent = HttpSent | BytesSent | StreamSent;

/** A well-formed request to a protocol around the bytes of a body. */
export function sentTo(protocol: ProtocolName, { routes, rpcPath }: Operation, credential: string, body: Buffer): Sent {
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

/** A message as gRPC frames it: a byte of flags, its length, itself. */
export function frame(message: Uint8Array, flags = 0, length = message.length): Buffer {
  const head = Buffer.alloc(5);
  head.writeUInt8(flags);
  head.writeUInt32BE(length, 1);
  return Buffer.concat([head, message]);
}

/** A sound request as the bytes that HTTP/1.1 has for it, with any headers beside. The connection ends with it. */
export function wireOf({ verb, path, headers }: HttpSent, framing: Headers, body: Buffer): Buffer {
  const lines = [...headers, ...framing, ["host", "a"], ["connection", "close"]].map(
    ([name, value]) => `${name}: ${value}`,
  );
  return Buffer.concat([Buffer.from(`${verb} ${path} HTTP/1.1\r\n${lines.join("\r\n")}\r\n\r\n`, "latin1"), body]);
}

/** What was sent, for people: credentials left out, and long bodies cut. */
export function describe(sent: Sent): string {
  return `${sent.by} ${partsOf(sent).join(" ")}`.replace(/Bearer [^\s"\\]+/g, "Bearer …");
}

function partsOf(sent: Sent): string[] {
  if (sent.by === "socket") return [shown(sent.bytes)];
  const headers = JSON.stringify(sent.headers).slice(0, mostShown);
  const pieces = sent.by === "http" && sent.pieces ? [`in pieces of ${sent.pieces}`] : [];
  return [sent.by === "http" ? sent.verb : "POST", sent.path.slice(0, mostShown), headers, shown(sent.body), ...pieces];
}

const mostShown = 600;

/** As text if it is one, otherwise in hex. */
function shown(bytes: Buffer): string {
  const text = bytes.toString();
  const isText = Buffer.from(text).equals(bytes) && !/[^\P{Cc}\r\n]/u.test(text);
  const whole = isText ? JSON.stringify(text) : `hex ${bytes.toString("hex")}`;
  return whole.length <= mostShown ? whole : `${whole.slice(0, mostShown)}… (${bytes.length} bytes)`;
}
