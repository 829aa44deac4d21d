import type { FastifyRequest } from "fastify";
import { type ApiError, invalidInput, unsupportedCompression, withLocations } from "../../errors.js";
import type { Shape } from "./shape.js";
import { parseStrictJson } from "./strict-json.js";

/** What is known about the body of a route. */
export interface BodyFormat {
  readonly shape: Shape;
  /** The field whose value is the whole body; undefined if the body is the whole message. */
  readonly fieldName: string | undefined;
}

/**
 * Parses a JSON body. An empty body means `{}`, because the documented listKeys call may send none, or `[]` if the body
 * is a list.
 */
export function parseBody(request: FastifyRequest, { shape, fieldName }: BodyFormat): unknown {
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
  if (body === undefined || body.length === 0) return shape.items === undefined ? {} : [];
  return parseStrictJson(body, shape, fieldName);
}

/**
 * The same error, with locations in the body that the client sent. If that is the value of one field, the client does
 * not know the name of the field: `limits[0].limit` is `body[0].limit`.
 */
export function locateInBody(error: ApiError, { fieldName }: BodyFormat): ApiError {
  if (fieldName === undefined) return error;
  const isField = new RegExp(`^${fieldName}(?=$|[.[])`);
  return withLocations(error, (location) => location.replace(isField, "body"));
}
