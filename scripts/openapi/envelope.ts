import { requestIdHeader } from "./failures.js";
import type { JsonObject } from "./json.js";

/** A success in its envelope: the data and, of a list, where it stands. */
export function envelopeOf(description: string, data: JsonObject, pagination?: JsonObject): JsonObject {
  return {
    type: "object",
    description,
    properties: { meta: { $ref: "#/components/schemas/Meta" }, data, ...(pagination && { pagination }) },
    required: ["meta", "data", ...(pagination ? ["pagination"] : [])],
  };
}

/** The response that carries a success. */
export function successResponse(description: string, schema: JsonObject, headers: JsonObject = {}): JsonObject {
  return { description, headers: { ...requestIdHeader, ...headers }, content: { "application/json": { schema } } };
}

/** What every envelope has, and the envelope of every failure. */
export const envelopeSchemas: JsonObject = {
  Meta: {
    type: "object",
    description: "About the call itself.",
    properties: {
      requestId: {
        type: "string",
        description: "Identifies the call; also the header `X-Request-Id`, and in the service's log.",
        pattern: "^req_[0-9a-z]{26}$",
        examples: ["req_01jd9x2m5te4btvz7p3k8n6qwc"],
      },
    },
    required: ["requestId"],
  },
  Failure: {
    type: "object",
    description: "Every answer that is not a success.",
    properties: {
      meta: { $ref: "#/components/schemas/Meta" },
      error: {
        type: "object",
        description: "What went wrong.",
        properties: {
          detail: { type: "string", description: "What happened this time, for people." },
          status: { type: "integer", description: "The HTTP status.", minimum: 400, maximum: 599 },
          title: { type: "string", description: "The standard phrase of the status." },
          type: {
            type: "string",
            format: "uri",
            description: "The kind of failure, by its last two segments `<category>/<code>`; a page that opens.",
            pattern: "/api-reference/errors-v2/service/[a-z]+/[a-z_]+$",
          },
          errors: {
            type: "array",
            description: "With `application/invalid_input`: what is wrong with which field, ten at most.",
            maxItems: 10,
            items: {
              type: "object",
              properties: {
                location: { type: "string", description: "The field, such as `permissions[0]`; `body` for the whole." },
                message: { type: "string", description: "What is wrong, and how to mend it." },
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

/** The headers of answers. */
export const envelopeHeaders: JsonObject = {
  "X-Request-Id": header("Identifies the call, as `meta.requestId` does."),
  "WWW-Authenticate": header("How to authenticate, by RFC 6750."),
  "Retry-After": header("After how many seconds to try again."),
  "RateLimit-Policy": header(
    'Where the service limits requests: how many (`q`) a workspace may make in how many seconds (`w`), such as `"workspace";q=600;w=60`.',
  ),
  RateLimit: header(
    'Where the service limits requests: how many are left (`r`), and for how many seconds more (`t`), such as `"workspace";r=599;t=60`.',
  ),
  Allow: header("With 405: the methods that the path takes."),
};

/** The headers of requests, besides the credential. */
export const envelopeParameters: JsonObject = {
  "Idempotency-Key": {
    name: "Idempotency-Key",
    in: "header",
    description:
      "Chosen by you for this one change, such as a random UUID. Whoever got no answer sends the same request with the same key again: within 24 hours the change is made once, and the first answer given again. Another request with it is refused.",
    required: false,
    schema: { type: "string", minLength: 1, maxLength: 255, pattern: "^[\\x20-\\x2b\\x2d-\\x7e]*$" },
  },
};

function header(description: string): JsonObject {
  return { description, schema: { type: "string" } };
}
