import type { FastifyRequest } from "fastify";
import { invalidInput, mediaTypeUnsupported } from "../errors.js";

const utf8 = new TextDecoder("utf-8", { fatal: true });

/** Parses a JSON body. An empty one means `{}`: the documented listKeys call may send none. */
export function parseBody(request: FastifyRequest): unknown {
  const { headers, query } = request;
  const body = request.body as Buffer | undefined;
  const parameters = Object.keys(query as object);
  if (parameters.length > 0) {
    throw invalidInput(parameters.map((location) => ({ location, message: "belongs in the body, not in the query" })));
  }
  if ((headers["content-encoding"] ?? "identity").toLowerCase() !== "identity") {
    throw mediaTypeUnsupported("Compressed bodies are not read: send the JSON without `Content-Encoding`.");
  }
  if (body === undefined || body.length === 0) return {};
  try {
    return JSON.parse(utf8.decode(body));
  } catch (error) {
    throw invalidInput([{ location: "body", message: `is not valid JSON: ${reasonOf(error)}` }]);
  }
}

/** V8 quotes from the text, which may hold a secret. What it says without quoting tells the place well enough. */
function reasonOf(error: unknown): string {
  if (!(error instanceof SyntaxError)) return "it is not UTF-8";
  const [unexpected] = /^Unexpected token '.'/su.exec(error.message) ?? [];
  return unexpected ?? (error.message.includes('"') ? "it is not a JSON value" : error.message);
}
