import { ErrorCode } from "../../gen/latchkey/v1/errors_pb.js";
import { envelopeOf, successResponse } from "./envelope.js";
import { errorResponses } from "./errors.js";
import type { JsonObject } from "./json.js";

/** The tag of the probes. */
export const probesTag = { name: "Probes", description: "The state of the service. Probes need no credential." };

/** The probes of the HTTP port, for load balancers and operators. */
export const probes: JsonObject = {
  "/v2/liveness": probe("liveness", "Succeeds while the process runs", { status: { const: "alive" } }),
  "/livez": probe("livez", "Succeeds while the process runs", { status: { const: "alive" } }),
  "/readyz": probe(
    "readyz",
    "Succeeds while keys can be verified",
    {
      status: { const: "ready" },
      lease: { const: "valid" },
      redis: { enum: ["in use", "out of use", "none"], description: "Redis never makes the service unready." },
    },
    [ErrorCode.APPLICATION_SERVICE_UNAVAILABLE],
  ),
};

function probe(
  operationId: string,
  summary: string,
  properties: JsonObject,
  errors: Parameters<typeof errorResponses>[0] = [],
): JsonObject {
  const data = { type: "object", properties, required: Object.keys(properties) };
  return {
    get: {
      operationId,
      tags: [probesTag.name],
      summary,
      security: [],
      responses: {
        200: successResponse("The probe succeeded.", envelopeOf("The state of the service.", data)),
        ...errorResponses(errors),
      },
    },
  };
}
