import { ErrorInfoSchema } from "../../../../gen/google/rpc/error_details_pb.js";
import { type ConnectDetail, findConnectDetail } from "../status-details.js";
import { type CallResult, inconclusiveCodes, type ProtocolClient } from "./client.js";
import { openSocketClient } from "./socket.js";

/** Connect with JSON, over HTTP/1.1. */
export function openConnectClient(port: number): ProtocolClient {
  return openSocketClient(port, { name: "connect", write: ({ connect }) => connect.whole, read: readConnectResponse });
}

/** Returns undefined while the response is incomplete. */
export function readConnectResponse(bytes: Buffer): CallResult | undefined {
  const headersEnd = bytes.indexOf("\r\n\r\n");
  if (headersEnd < 0) return undefined;
  const headers = bytes.toString("latin1", 0, headersEnd);
  const length = Number(/\r\ncontent-length: *(\d+)/i.exec(headers)?.[1] ?? Number.NaN);
  const chunked = /\r\ntransfer-encoding: *chunked/i.test(headers);
  if (chunked ? !bytes.subarray(-7).includes("0\r\n\r\n") : bytes.length < headersEnd + 4 + length) return undefined;
  const text = bytes.toString("utf8", headersEnd + 4);
  const body = JSON.parse(text.slice(text.indexOf("{"), text.lastIndexOf("}") + 1) || "{}") as ConnectBody;
  if (headers.startsWith("HTTP/1.1 200")) return { kind: "success", fields: body };
  const info = findConnectDetail(body.details, ErrorInfoSchema);
  if (info === undefined) return { kind: "unavailable", why: headers.slice(0, headers.indexOf("\r\n")) };
  const code = info.reason.toLowerCase();
  return inconclusiveCodes.has(code) ? { kind: "unavailable", why: code } : { kind: "refused", code };
}

type ConnectBody = Record<string, unknown> & { readonly details?: readonly ConnectDetail[] };
