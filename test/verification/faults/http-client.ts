import { type Answer, type ProtocolClient, withoutJudgement } from "./answer.js";
import { openSocketClient } from "./socket-client.js";

/** HTTP/JSON. */
export function openHttpClient(port: number): ProtocolClient {
  return openSocketClient(port, { name: "http", write: ({ http }) => http, read: readAnswer });
}

/** The answer, once it is here as a whole. */
export function readAnswer(bytes: Buffer): Answer | undefined {
  const headEnd = bytes.indexOf("\r\n\r\n");
  if (headEnd < 0) return undefined;
  const head = bytes.toString("latin1", 0, headEnd);
  const length = Number(/\r\ncontent-length: *(\d+)/i.exec(head)?.[1] ?? 0);
  if (bytes.length < headEnd + 4 + length) return undefined;
  // Node itself answers in plain text when it is closing.
  if (!head.includes("application/json")) return { kind: "unavailable", why: head.slice(0, head.indexOf("\r\n")) };
  const { data, error } = JSON.parse(bytes.toString("utf8", headEnd + 4)) as Envelope;
  if (error === undefined) return { kind: "success", fields: data ?? {} };
  const code = error.type.slice(error.type.lastIndexOf("/") + 1);
  return withoutJudgement.has(code) ? { kind: "unavailable", why: code } : { kind: "refused", code };
}

interface Envelope {
  readonly data?: Record<string, unknown>;
  readonly error?: { readonly type: string };
}
