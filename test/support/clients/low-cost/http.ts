import { type CallResult, inconclusiveCodes, type ProtocolClient } from "./client.js";
import { openSocketClient } from "./socket.js";

/** HTTP/JSON. */
export function openHttpClient(port: number): ProtocolClient {
  return openSocketClient(port, { name: "http", write: ({ http }) => http, read: readHttpResponse });
}

/** Returns undefined while the response is incomplete. */
export function readHttpResponse(bytes: Buffer): CallResult | undefined {
  const headersEnd = bytes.indexOf("\r\n\r\n");
  if (headersEnd < 0) return undefined;
  const headers = bytes.toString("latin1", 0, headersEnd);
  const length = Number(/\r\ncontent-length: *(\d+)/i.exec(headers)?.[1] ?? 0);
  if (bytes.length < headersEnd + 4 + length) return undefined;
  // While its server closes, Node itself responds in plain text.
  if (!headers.includes("application/json"))
    return { kind: "unavailable", why: headers.slice(0, headers.indexOf("\r\n")) };
  const { data, error } = JSON.parse(bytes.toString("utf8", headersEnd + 4)) as Envelope;
  if (error === undefined) return { kind: "success", fields: data ?? {} };
  const code = error.type.slice(error.type.lastIndexOf("/") + 1);
  return inconclusiveCodes.has(code) ? { kind: "unavailable", why: code } : { kind: "refused", code };
}

interface Envelope {
  readonly data?: Record<string, unknown>;
  readonly error?: { readonly type: string };
}
