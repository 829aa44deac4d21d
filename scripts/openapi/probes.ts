import { ErrorCode } from "../../gen/latchkey/v1/errors_pb.js";
import { envelopeOf, successResponse } from "./envelope.js";
import { failureResponses } from "./failures.js";
import type { JsonObject } from "./json.js";

/** The group that the probes stand in. */
export const probesTag = { name: "Probes", description: "How the service stands. Nobody needs a credential to ask." };

/** What the gateway serves besides the RPCs, for load balancers and people. */
export const probes: JsonObject = {
  "/v2/liveness": probe("liveness", "Answers while the process runs", { status: { const: "alive" } }),
  "/readyz": probe(
    "readyz",
    "Answers while keys can be judged",
    {
      status: { const: "ready" },
      lease: { const: "held" },
      redis: { enum: ["in use", "out of use", "none"], description: "Never makes the service unready." },
    },
    [ErrorCode.APPLICATION_SERVICE_UNAVAILABLE],
  ),
};

function probe(
  operationId: string,
  summary: string,
  properties: JsonObject,
  failures: Parameters<typeof failureResponses>[0] = [],
): JsonObject {
  const data = { type: "object", properties, required: Object.keys(properties) };
  return {
    get: {
      operationId,
      tags: [probesTag.name],
      summary,
      security: [],
      responses: {
        200: successResponse("It does.", envelopeOf("How the service stands.", data)),
        ...failureResponses(failures),
      },
    },
  };
}
