import type { IncomingHttpHeaders } from "node:http";
import { invalidInput, mediaTypeUnsupported } from "../errors.js";

const utf8 = new TextDecoder("utf-8", { fatal: true });

/** Parses a JSON body. An empty one means `{}`: the documented listKeys call may send none. */
export function parseBody(headers: IncomingHttpHeaders, body: Buffer | undefined): unknown {
  if ((headers["content-encoding"] ?? "identity") !== "identity") {
    throw mediaTypeUnsupported("Compressed bodies are not read: send the JSON without `Content-Encoding`.");
  }
  if (body === undefined || body.length === 0) return {};
  try {
    return JSON.parse(utf8.decode(body));
  } catch (error) {
    throw invalidInput([{ location: "body", message: `is not valid JSON: ${reasonOf(error)}` }]);
  }
}

/** V8 quotes from the text, which may hold a secret; where it broke off is enough. */
function reasonOf(error: unknown): string {
  if (!(error instanceof SyntaxError)) return "it is not UTF-8";
  return error.message
    .replace(/, (\.\.\.)?".*" is not valid JSON$/s, "")
    .replace(/^\W*".*" is not valid JSON$/s, "it has no meaning as JSON");
}
