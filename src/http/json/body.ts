import type { FastifyRequest } from "fastify";
import { invalidInput, unsupportedCompression } from "../../errors.js";
import { parseStrictJson } from "./strict-json.js";

/** Parses a JSON body. An empty body means `{}`, because the documented listKeys call may send none. */
export function parseBody(request: FastifyRequest): unknown {
  const { headers, query } = request;
  const body = request.body as Buffer | undefined;
  const parameters = Object.keys(query as object);
  if (parameters.length > 0) {
    throw invalidInput(
      parameters.map((location) => ({ location, message: "must be sent in the body, not in the query" })),
    );
  }
  if ((headers["content-encoding"] ?? "identity").toLowerCase() !== "identity") {
    throw unsupportedCompression("Content-Encoding");
  }
  return body === undefined || body.length === 0 ? {} : parseStrictJson(body);
}
