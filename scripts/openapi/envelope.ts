import { requestIdHeader } from "./errors.js";
import type { JsonObject } from "./json.js";

/** The envelope of a success: the data and, for a list, the pagination. */
export function envelopeOf(description: string, data: JsonObject, pagination?: JsonObject): JsonObject {
  return {
    type: "object",
    description,
    properties: { meta: { $ref: "#/components/schemas/Meta" }, data, ...(pagination && { pagination }) },
    required: ["meta", "data", ...(pagination ? ["pagination"] : [])],
  };
}

/** The response of a success. */
export function successResponse(description: string, schema: JsonObject, headers: JsonObject = {}): JsonObject {
  return { description, headers: { ...requestIdHeader, ...headers }, content: { "application/json": { schema } } };
}

/** The common part of all envelopes, and the envelope of errors. */
export const envelopeSchemas: JsonObject = {
  Meta: {
    type: "object",
    description: "Metadata of the call.",
    properties: {
      requestId: {
        type: "string",
        description: "Identifies the call, also in the header `X-Request-Id` and in the service's log.",
        pattern: "^req_[0-9a-z]{26}$",
        examples: ["req_01jd9x2m5te4btvz7p3k8n6qwc"],
      },
    },
    required: ["requestId"],
  },
  Failure: {
    type: "object",
    description: "The response of every failed call.",
    properties: {
      meta: { $ref: "#/components/schemas/Meta" },
      error: {
        type: "object",
        description: "The error.",
        properties: {
          detail: { type: "string", description: "A human-readable description of this occurrence." },
          status: { type: "integer", description: "The HTTP status.", minimum: 400, maximum: 599 },
          title: { type: "string", description: "The reason phrase of the HTTP status." },
          type: {
            type: "string",
            format: "uri",
            description: "The URL of a page about the error. Its last two segments are `<category>/<code>`.",
            pattern: "/api-reference/errors-v2/service/[a-z]+/[a-z_]+$",
          },
          errors: {
            type: "array",
            description: "With `application/invalid_input`: the invalid fields, at most ten.",
            maxItems: 10,
            items: {
              type: "object",
              properties: {
                location: {
                  type: "string",
                  description: "The field, such as `permissions[0]`, or `body` for the whole body.",
                },
                message: { type: "string", description: "What is wrong, and how to fix it." },
              },
              required: ["location", "message"],
            },
          },
        },
        required: ["detail", "status", "title", "type"],
      },
    },
    required: ["meta", "error"],
  },
};

/** The response headers. */
export const envelopeHeaders: JsonObject = {
  "X-Request-Id": header("Identifies the call, like `meta.requestId`."),
  "WWW-Authenticate": header("How to authenticate, by RFC 6750."),
  "Retry-After": header("The number of seconds after which to retry."),
  "RateLimit-Policy": header(
    'If rate limiting is enabled: the quota of a workspace (`q`) per window of seconds (`w`), such as `"workspace";q=600;w=60`.',
  ),
  RateLimit: header(
    'If rate limiting is enabled: the remaining requests (`r`), and the seconds until the window ends (`t`), such as `"workspace";r=599;t=60`.',
  ),
  Allow: header("With 405: the methods that the path supports."),
};

/** The request headers, except the credential. */
export const envelopeParameters: JsonObject = {
  "Idempotency-Key": {
    name: "Idempotency-Key",
    in: "header",
    description:
      "A value that the client chooses for one change, such as a random UUID. A client that received no response retries the same request with the same key: within 24 hours the change is made only once, and the retry returns the first response. A different request with the same key is refused.",
    required: false,
    schema: { type: "string", minLength: 1, maxLength: 255, pattern: "^[\\x20-\\x2b\\x2d-\\x7e]*$" },
  },
};

function header(description: string): JsonObject {
  return { description, schema: { type: "string" } };
}
