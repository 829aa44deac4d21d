import { fromBinary } from "@bufbuild/protobuf";
import { ErrorInfoSchema } from "../../../gen/google/rpc/error_details_pb.js";
import { type Answer, type ProtocolClient, withoutJudgement } from "./answer.js";
import { openSocketClient } from "./socket-client.js";

/** Connect with JSON, over HTTP/1.1. */
export function openConnectClient(port: number): ProtocolClient {
  return openSocketClient(port, { name: "connect", write: ({ connect }) => connect.whole, read: readConnect });
}

/** An answer of Connect, once it is here as a whole. */
export function readConnect(bytes: Buffer): Answer | undefined {
  const headEnd = bytes.indexOf("\r\n\r\n");
  if (headEnd < 0) return undefined;
  const head = bytes.toString("latin1", 0, headEnd);
  const length = Number(/\r\ncontent-length: *(\d+)/i.exec(head)?.[1] ?? Number.NaN);
  const chunked = /\r\ntransfer-encoding: *chunked/i.test(head);
  if (chunked ? !bytes.subarray(-7).includes("0\r\n\r\n") : bytes.length < headEnd + 4 + length) return undefined;
  const text = bytes.toString("utf8", headEnd + 4);
  const body = JSON.parse(text.slice(text.indexOf("{"), text.lastIndexOf("}") + 1) || "{}") as ConnectBody;
  if (head.startsWith("HTTP/1.1 200")) return { kind: "success", fields: body };
  const info = body.details?.find(({ type }) => type === ErrorInfoSchema.typeName);
  if (info === undefined) return { kind: "unavailable", why: head.slice(0, head.indexOf("\r\n")) };
  const code = fromBinary(ErrorInfoSchema, Buffer.from(info.value, "base64")).reason.toLowerCase();
  return withoutJudgement.has(code) ? { kind: "unavailable", why: code } : { kind: "refused", code };
}

type ConnectBody = Record<string, unknown> & { readonly details?: readonly { type: string; value: string }[] };
